"""Rows in PostgreSQL's binary COPY format: a third of what the driver takes to convert them one by one.

The format: a header; for each row the number of its columns, then each column's length and value; an end.
(PostgreSQL manual, "COPY", Binary Format.)
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

from psycopg import Connection
from sqlalchemy.orm import Session

NULL = b"\xff\xff\xff\xff"
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_LENGTH = Struct("!i")


def field(value: bytes | None) -> bytes:
    """One column: its length and value."""
    return NULL if value is None else _LENGTH.pack(len(value)) + value


def copy_in(
    session: Session, table: str, columns: str, pieces: Iterable[bytes], *, options: str = ""
) -> None:
    """Copy rows, each of which `pieces` holds whole or in parts, into the table."""
    with (
        driver(session).cursor() as cursor,
        cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT BINARY{options})") as copy,
    ):
        copy.write(_HEADER)
        for piece in pieces:
            copy.write(piece)
        copy.write(_END)


def driver(session: Session) -> Connection[Any]:
    """The psycopg connection beneath the session."""
    found = session.connection().connection.dbapi_connection
    if not isinstance(found, Connection):
        raise TypeError("the database driver is psycopg")
    return found
