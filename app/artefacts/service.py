"""Garbage collection: blobs that nothing in the database needs any more, and nobody is about to need.

A blob is written before the transaction that names it. So a blob counts as garbage only when it was stored
longer ago than a grace period, within which that transaction must end, and when the database does not name
it. Both are looked at anew right before blobs are removed: the database for each batch, the time for each
blob. Storing content again renews its time, so that a blob that is wanted again at that moment stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from sqlalchemy.orm import Session

from app.artefacts import repository
from app.events import service as events
from models_store.blobs import Blob, BlobStore

_BATCH = 500
_NAMELESS = "named by nothing in the database"
_RECENT = "stored within the grace period"


class NothingNeeded(Exception):
    """The database needs no blob of this store. Do they belong together? Nothing was removed."""


Begin = Callable[[], AbstractContextManager[Session]]


@dataclass
class Tally:
    """How many blobs there are of each description, and their bytes together."""

    blobs: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, description: str, size: int) -> None:
        """Count one blob."""
        self.blobs[description] += 1
        self.bytes[description] += size


@dataclass
class Findings:
    """What a collection found.

    Attributes:
        kept: Blobs by what needs them.
        garbage: Blobs by what they were.
        removed: The part of the garbage that is gone, by what it was.
        drafts: Drafts that their writers abandoned; gone if garbage was removed.
    """

    kept: Tally = field(default_factory=Tally)
    garbage: Tally = field(default_factory=Tally)
    removed: Tally = field(default_factory=Tally)
    drafts: int = 0

    @property
    def is_all_garbage(self) -> bool:
        """Whether the database needs nothing of what there is."""
        return bool(self.garbage.blobs) and self.kept.blobs.keys() <= {_RECENT}


def survey(store: BlobStore, begin: Begin, *, grace: timedelta) -> Findings:
    """What `collect` would find; changes nothing. Raises StoreUnavailable."""
    limit, findings = datetime.now(UTC) - grace, Findings()
    for batch in _batches(store.blobs()):
        with begin() as session:
            _judge(session, batch, limit, findings)
    findings.drafts = len(store.abandoned_drafts(grace))
    return findings


def collect(store: BlobStore, begin: Begin, *, grace: timedelta, actor: str) -> Findings:
    """Look through the whole store and remove what is garbage.

    Args:
        store: Where the blobs are.
        begin: Opens a transaction; there are several, since the store cannot take part in one.
        grace: What was stored more recently is never garbage.
        actor: Whom the audit log names.

    Raises:
        NothingNeeded: All of it would be garbage.
        StoreUnavailable: What was removed until then is gone, and on record.
    """
    if survey(store, begin, grace=grace).is_all_garbage:
        raise NothingNeeded(NothingNeeded.__doc__)
    limit, findings = datetime.now(UTC) - grace, Findings()
    for batch in _batches(store.blobs()):
        with begin() as session:
            garbage = _judge(session, batch, limit, findings)
            repository.forget(session, garbage)
        removed = Tally()
        try:
            for digest, (description, size) in garbage.items():
                if store.delete(digest, unless_modified_since=limit):
                    removed.add(description, size)
        finally:
            _record(removed, begin, actor)
        findings.removed.blobs += removed.blobs
        findings.removed.bytes += removed.bytes
    findings.drafts = store.remove_abandoned_drafts(grace)
    return findings


def _judge(
    session: Session, batch: Sequence[Blob], limit: datetime, findings: Findings
) -> dict[str, tuple[str, int]]:
    """Add each blob to the findings; returns description and size of the garbage among them, by digest."""
    old = [blob.digest for blob in batch if blob.modified < limit]
    needed = repository.needed(session, old)
    garbage = set(old) - needed.keys()
    origins = repository.origins(session, garbage)
    found = {}
    for blob in batch:
        if blob.digest in garbage:
            description = origins.get(blob.digest, _NAMELESS)
            findings.garbage.add(description, blob.size)
            found[blob.digest] = (description, blob.size)
        else:
            findings.kept.add(needed.get(blob.digest, _RECENT), blob.size)
    return found


def _record(removed: Tally, begin: Begin, actor: str) -> None:
    if removed.blobs:
        with begin() as session:
            events.record(
                session,
                actor=actor,
                action="garbage removed",
                entity="Store",
                entity_id="artefacts",
                blobs=removed.blobs.total(),
                bytes=removed.bytes.total(),
            )


def _batches(blobs: Iterable[Blob]) -> Iterator[Sequence[Blob]]:
    rest = iter(blobs)
    while batch := list(islice(rest, _BATCH)):
        yield batch
