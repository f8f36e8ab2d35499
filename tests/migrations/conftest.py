"""A database of its own for each test, and moving it from one revision to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from tests.migrations.databases import Move

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def connection(postgres_url: str, create_database: Callable[[str | None], str]) -> Iterator[Connection]:
    """A connection to an empty database, which is dropped afterwards."""
    url = create_database(None)
    with create_engine(url, poolclass=NullPool).connect() as connection:
        yield connection
    admin = create_engine(postgres_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as outside:
        outside.execute(text(f"DROP DATABASE {make_url(url).database} WITH (FORCE)"))


@pytest.fixture
def move(connection: Connection) -> Move:
    """Run the migrations up or down to a revision."""
    config = Config(toml_file=str(_PROJECT))
    config.attributes["connection"] = connection

    def to(revision: str) -> None:
        here = MigrationContext.configure(connection).get_current_revision()
        passed = ScriptDirectory.from_config(config).iterate_revisions(here, "base") if here else ()
        is_older = revision in {script.revision for script in passed}
        connection.commit()
        (command.downgrade if is_older else command.upgrade)(config, revision)
        connection.commit()

    return to
