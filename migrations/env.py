"""Alembic's entry: runs the migrations on the database of the settings, or on a connection handed in."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from app.config import settings
from app.tables import Base


def _is_ours(_object: object, name: str | None, type_: str, _reflected: bool, _compare_to: object) -> bool:
    """Partitions of `samples` are made by ingest jobs, not by migrations."""
    return not (type_ == "table" and name is not None and name.startswith("samples_"))


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_object=_is_ours,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.execute("SET LOCAL lock_timeout = '10s'")
        context.execute("SELECT pg_advisory_xact_lock(hashtext('expunge migrations'))")
        context.run_migrations()


def _run_on_settings() -> None:
    url = settings().database_url
    if url is None:
        raise SystemExit("EXPUNGE_DATABASE_URL is not set")
    with create_engine(url, poolclass=NullPool).connect() as connection:
        _run(connection)


handed_in = context.config.attributes.get("connection")
if handed_in is None:
    _run_on_settings()
else:
    _run(handed_in)
