"""Checks the migrations on a real PostgreSQL of its own: `python -m tests.alembic_check`.

They must lead to exactly the tables that the code declares, back to an empty database, and there again.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import create_engine, inspect
from sqlalchemy.pool import NullPool

from app.embedded import Postgres

_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


class NotReversible(Exception):
    """Something is left after all migrations were taken back."""


def main() -> int:
    """The exit code: 0 if the migrations are right; otherwise the reason goes to stderr."""
    with (
        tempfile.TemporaryDirectory(prefix="expunge-alembic-", ignore_cleanup_errors=True) as folder,
        Postgres(Path(folder, "postgres")).running() as url,
    ):
        try:
            check(url)
        except (CommandError, NotReversible) as error:
            print(f"The migrations are wrong: {error}", file=sys.stderr)  # noqa: T201 - a command's output
            return 1
    return 0


def check(url: str) -> None:
    """Migrate the empty database at `url` up, down and up, comparing it with the tables in the code.

    Raises:
        CommandError: The migrations and the code differ, or do not form one line.
        NotReversible: The way down leaves something.
    """
    _upgrade_and_compare(url)
    _run(url, lambda config: command.downgrade(config, "base"))
    _refuse_leftovers(url)
    _upgrade_and_compare(url)


def _upgrade_and_compare(url: str) -> None:
    _run(url, lambda config: command.upgrade(config, "head"))
    _run(url, command.check)


def _run(url: str, act: Callable[[Config], object]) -> None:
    """Run an alembic command by the project's own configuration."""
    config = Config(toml_file=str(_PROJECT), stdout=StringIO())
    with create_engine(url, poolclass=NullPool).connect() as connection:
        config.attributes["connection"] = connection
        act(config)


def _refuse_leftovers(url: str) -> None:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        found = inspect(connection)
        left = {*found.get_table_names(), *found.get_sequence_names()} - {"alembic_version"}
    if left:
        raise NotReversible(f"after the way down there are still: {', '.join(sorted(left))}")


if __name__ == "__main__":
    sys.exit(main())
