"""What routes ask for: a session that commits before the answer leaves, and a page of a list."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar

from fastapi import Depends, Query, Request, Response
from sqlalchemy.orm import Session

from app.db import transaction
from app.errors import Fault, Invalid


def _session() -> Iterator[Session]:
    with transaction() as session:
        yield session


# Function scope: a failing commit must reach the caller as an error, not follow a success already sent.
Db = Annotated[Session, Depends(_session, scope="function")]


def _transactions() -> Callable[[], AbstractContextManager[Session]]:
    return transaction


# For routes that receive a long body first: no connection is held before they begin.
Begin = Annotated[Callable[[], AbstractContextManager[Session]], Depends(_transactions)]


class Numbered(Protocol):
    """A row that lists are ordered by."""

    @property
    def ordinal(self) -> int:
        """Its place in the order of creation."""


Row = TypeVar("Row", bound=Numbered)


@dataclass(frozen=True)
class Page:
    """Which part of a list is wanted; cursors are opaque."""

    limit: int
    after: int

    def cut(self, rows: Sequence[Row], request: Request, response: Response) -> Sequence[Row]:
        """The page out of `rows`, of which one more than `limit` was read; sets the Link header."""
        if len(rows) > self.limit:
            last = rows[self.limit - 1].ordinal
            cursor = base64.urlsafe_b64encode(str(last).encode()).decode().rstrip("=")
            following = request.url.include_query_params(cursor=cursor, limit=self.limit)
            response.headers["Link"] = f'<{following}>; rel="next"'
        return rows[: self.limit]


def _page(
    limit: Annotated[int, Query(ge=1, le=1000, description="The most rows to return.")] = 50,
    cursor: Annotated[str | None, Query(max_length=64, description="From a Link header.")] = None,
) -> Page:
    return Page(limit=limit, after=_ordinal(cursor) if cursor else 0)


def _ordinal(cursor: str) -> int:
    try:
        ordinal = int(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode())
    except (ValueError, binascii.Error):
        ordinal = -1
    if not 0 <= ordinal < 2**63:
        raise Invalid(faults=[Fault(pointer="cursor", detail="not a cursor of this service")])
    return ordinal


Paging = Annotated[Page, Depends(_page)]
