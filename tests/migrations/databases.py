"""What the tests of migrations share."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text

Move = Callable[[str], None]


def rows_of(connection: Connection, statement: str) -> list[tuple[object, ...]]:
    """What a query finds."""
    return [tuple(row) for row in connection.execute(text(statement))]
