"""The journal of requests that stand, kept in the store: a database that is restored has it to catch up with.

A backup of the database knows nothing of the requests that came after it, and would let their samples train
again. So every accepted request is written down beside the blobs, and struck out when it is cancelled or
denied. The journal holds keyed hashes and the request's terms, but no sample ID.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.tables import ApiKey, Dataset, DeletionRequest, RequestState, Tombstone
from models_store.journal import Journal

TAKEN_BACK = (RequestState.CANCELLED, RequestState.DENIED)


@dataclass(frozen=True)
class Terms:
    """What the journal says of a request besides its tombstones."""

    request_id: str
    caller_id: str
    caller: str
    external_id: str | None
    regulation: str
    reference: bool
    received_at: str
    due_at: str


@dataclass(frozen=True)
class Mark:
    """One tombstone: a line of the journal is these values in this order, since there may be a million."""

    number: int
    dataset_id: str
    dataset: str
    sample_key: str | None
    subject_key: str | None
    content_key: str | None
    key_id: str


def catch_up(session: Session, journal: Journal, *, limit: int) -> int:
    """Bring the journal's entries of the oldest requests that changed up to date; how many there were."""
    changed = session.scalars(
        select(DeletionRequest)
        .where(DeletionRequest.journaled_at.is_(None))
        .order_by(DeletionRequest.ordinal)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    ).all()
    for request in changed:
        if request.state in TAKEN_BACK:
            journal.remove(request.id)
        else:
            journal.write(request.id, _lines(session, request))
        request.journaled_at = datetime.now(UTC)
    return len(changed)


def read(journal: Journal, request_id: uuid.UUID) -> tuple[Terms, Iterator[Mark]]:
    """A request's terms and its tombstones."""
    lines = journal.read(request_id)
    terms = Terms(**json.loads(next(lines)))
    return terms, (Mark(*json.loads(line)) for line in lines)


def _lines(session: Session, request: DeletionRequest) -> Iterator[bytes]:
    terms = Terms(
        request_id=str(request.id),
        caller_id=str(request.caller_id),
        caller=session.get_one(ApiKey, request.caller_id).name,
        external_id=request.external_id,
        regulation=request.regulation,
        reference=request.reference,
        received_at=request.received_at.isoformat(),
        due_at=request.due_at.isoformat(),
    )
    yield json.dumps(asdict(terms)).encode()
    marks = (
        select(
            Tombstone.number,
            Tombstone.dataset_id,
            Dataset.name,
            Tombstone.sample_key,
            Tombstone.subject_key,
            Tombstone.content_key,
            Tombstone.key_id,
        )
        .join(Dataset, Dataset.id == Tombstone.dataset_id)
        .where(Tombstone.request_id == request.id)
        .order_by(Tombstone.number)
        .execution_options(yield_per=5_000)
    )
    for mark in session.execute(marks):
        yield json.dumps([_plain(value) for value in mark]).encode()


def _plain(value: object) -> object:
    """Keys in hexadecimal, IDs as text."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, uuid.UUID) else value
