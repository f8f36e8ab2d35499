"""Sessions: one engine a database, one transaction a request or task, committed at the edge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from app.config import settings


class DatabaseNotConfigured(Exception):
    """EXPUNGE_DATABASE_URL is not set; `expunge up` sets it for the parts it starts."""


@lru_cache
def engine_for(url: str) -> Engine:
    """The process's one engine for a database; stale pooled connections are noticed before use."""
    return create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=30, hide_parameters=True)


def engine() -> Engine:
    """The engine of the settings' database."""
    url = settings().database_url
    if url is None:
        raise DatabaseNotConfigured(DatabaseNotConfigured.__doc__)
    return engine_for(url)


@contextmanager
def transaction(url: str | None = None) -> Iterator[Session]:
    """A session whose work is committed when the block ends and rolled back when it raises."""
    with Session(engine_for(url) if url else engine()) as session, session.begin():
        yield session
