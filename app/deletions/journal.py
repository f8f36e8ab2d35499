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

from app.datasets.tombstones import Marks
from app.tables import ApiKey, Dataset, DeletionRequest, RequestState, Tombstones
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
    audit_budget: int
    received_at: str
    due_at: str


@dataclass(frozen=True)
class Entry:
    """Some of its tombstones, numbered from `number` on: a line of the journal."""

    number: int
    dataset_id: uuid.UUID
    dataset: str
    marks: Marks
    key_id: str

    @classmethod
    def of(cls, line: bytes) -> Entry:
        """What `line` wrote."""
        number, dataset_id, dataset, *keys, key_id = json.loads(line)
        marks = Marks(*(None if joined is None else bytes.fromhex(joined) for joined in keys))
        return cls(number, uuid.UUID(dataset_id), dataset, marks, key_id)

    @property
    def line(self) -> bytes:
        """Its values in their order, keys in hexadecimal."""
        keys = (None if joined is None else joined.hex() for joined in self.marks)
        return json.dumps([self.number, str(self.dataset_id), self.dataset, *keys, self.key_id]).encode()


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


def read(journal: Journal, request_id: uuid.UUID) -> tuple[Terms, Iterator[Entry]]:
    """A request's terms and its tombstones."""
    lines = journal.read(request_id)
    terms = json.loads(next(lines))
    if "reference" in terms:  # written before there were budgets
        terms["audit_budget"] = int(terms.pop("reference"))
    return Terms(**terms), map(Entry.of, lines)


def _lines(session: Session, request: DeletionRequest) -> Iterator[bytes]:
    terms = Terms(
        request_id=str(request.id),
        caller_id=str(request.caller_id),
        caller=session.get_one(ApiKey, request.caller_id).name,
        external_id=request.external_id,
        regulation=request.regulation,
        audit_budget=request.audit_budget,
        received_at=request.received_at.isoformat(),
        due_at=request.due_at.isoformat(),
    )
    yield json.dumps(asdict(terms)).encode()
    written = (
        select(
            Tombstones.number,
            Tombstones.dataset_id,
            Dataset.name,
            Tombstones.sample_keys,
            Tombstones.subject_keys,
            Tombstones.content_keys,
            Tombstones.key_id,
        )
        .join(Dataset, Dataset.id == Tombstones.dataset_id)
        .where(Tombstones.request_id == request.id)
        .order_by(Tombstones.number)
        .execution_options(yield_per=10)
    )
    for number, dataset_id, dataset, *keys, key_id in session.execute(written):
        yield Entry(number, dataset_id, dataset, Marks(*keys), key_id).line
