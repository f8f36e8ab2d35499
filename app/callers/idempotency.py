"""Idempotency-Key: the same key and payload get the same answer, another payload is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.callers.service import Caller
from app.errors import Problem
from app.tables import IdempotencyKey

IdempotencyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Send the same key again after a lost answer: nothing is done twice.",
    ),
]


class KeyReused(Problem):
    """This Idempotency-Key was used before with another payload."""

    status = 422
    slug = "idempotency-key-reused"


@dataclass(frozen=True)
class Answer:
    """What a creating route says: its body, where the new thing is, and its status."""

    body: BaseModel
    location: str | None = None
    status: int = 202
    headers: dict[str, str] = field(default_factory=dict)

    def render(self) -> JSONResponse:
        """The HTTP response."""
        return _respond(self.status, self.body.model_dump(mode="json"), self.location, self.headers)


def once(
    session: Session,
    caller: Caller,
    key: str | None,
    *,
    route: str,
    payload: BaseModel | str,
    act: Callable[[], Answer],
) -> JSONResponse:
    """Run `act` unless this caller's `key` was answered before; then repeat that answer.

    The key's row is written first and in the same transaction: a second request with the same key waits
    for the first to commit or fail, and so can never act beside it. `payload`: what was sent, or its digest.
    """
    if key is None:
        return act().render()
    key = key.strip('"')
    sent = payload if isinstance(payload, str) else payload.model_dump_json()
    fingerprint = hashlib.sha256(f"{route}\n{sent}".encode()).digest()
    row = {"caller_id": caller.id, "key": key, "fingerprint": fingerprint}
    fresh = session.execute(
        insert(IdempotencyKey).values(row).on_conflict_do_nothing().returning(IdempotencyKey.key)
    )
    if fresh.first() is None:
        return _replay(session, caller, key, fingerprint)
    answer = act()
    kept = session.get_one(IdempotencyKey, (caller.id, key))
    kept.status, kept.location = answer.status, answer.location
    kept.body = answer.body.model_dump(mode="json")
    return answer.render()


def _replay(session: Session, caller: Caller, key: str, fingerprint: bytes) -> JSONResponse:
    kept = session.scalars(select(IdempotencyKey).filter_by(caller_id=caller.id, key=key)).one()
    if kept.fingerprint != fingerprint or kept.status is None:
        raise KeyReused
    return _respond(kept.status, kept.body or {}, kept.location, {"Idempotency-Replayed": "true"})


def _respond(
    status: int, body: dict[str, Any], location: str | None, headers: dict[str, str]
) -> JSONResponse:
    retry = {"Retry-After": "2"} if status == 202 else {}
    where = {"Location": location} if location else {}
    return JSONResponse(body, status_code=status, headers={**headers, **retry, **where})
