"""After a database was restored from a backup: the requests that the journal has and it has not."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import NamedTuple

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import tombstones
from app.deletions import journal as journals
from app.deletions import service as deletions
from app.deletions.journal import Entry, Terms
from app.events import service as events
from app.pseudonyms import Pseudonyms
from app.registry import service as registry
from app.tables import (
    ApiKey,
    Dataset,
    DatasetState,
    DatasetVersion,
    DeletionItem,
    DeletionRequest,
    ItemResult,
    Sample,
    Target,
)
from models_store.journal import Journal

_BATCH = 5_000
_UNNAMED = "restored from the journal, which holds no sample IDs; no data set in force has it"


class _Mark(NamedTuple):
    """One tombstone of a request: what its item is made of."""

    number: int
    dataset_id: uuid.UUID
    subject_key: bytes | None
    key_id: str


class NotRestorable(Exception):
    """The journal does not belong to this database and its secret key."""


@dataclass(frozen=True)
class Gap:
    """How journal and database differ.

    Attributes:
        missing: Requests that stand by the journal, but are not in the database.
        taken_back: Requests that are in the database, but stand no more by the journal (or stand there only
            soon: the journal is written a moment after a request is accepted).
    """

    missing: frozenset[uuid.UUID]
    taken_back: frozenset[uuid.UUID]


def gap(session: Session, journal: Journal) -> Gap:
    """Compare the journal with the database."""
    kept = journal.names()
    known = set(session.scalars(select(DeletionRequest.id)))
    written = select(DeletionRequest.id).where(DeletionRequest.journaled_at.is_not(None))
    standing = set(session.scalars(written.where(DeletionRequest.state.not_in(journals.TAKEN_BACK))))
    return Gap(frozenset(kept - known), frozenset(standing - kept))


def restore(session: Session, journal: Journal, *, names: Pseudonyms, actor: str) -> int:
    """Accept every missing request again, under its own ID, in the caller's transaction; how many there were.

    Its tombstones cover the rows of every data set version that is ready, and its targets are open again.

    Raises:
        NotRestorable: the secret key is another one than that the journal was written under, or a data set of
            the same name was registered anew since the restore.
    """
    missing = gap(session, journal).missing
    watch = _Watch()
    for request_id in missing:
        _accept_again(session, *journals.read(journal, request_id), names, watch, actor)
    session.flush()
    for version in _ready_versions(session, watch.dataset_ids):
        _cover(session, version, watch, names)
    for request_id in missing:
        _add_items(session, request_id, watch)
        _open_targets(session, session.get_one(DeletionRequest, request_id), actor)
    return len(missing)


@dataclass
class _Watch:
    """The restored tombstones by what they are a hash of, and what was found for each."""

    marks: dict[uuid.UUID, list[_Mark]] = field(default_factory=dict)
    keys: dict[bytes, list[tuple[uuid.UUID, int]]] = field(default_factory=dict)
    sample_ids: dict[tuple[uuid.UUID, int], str] = field(default_factory=dict)
    rows: Counter[tuple[uuid.UUID, int]] = field(default_factory=Counter)

    @property
    def dataset_ids(self) -> set[uuid.UUID]:
        """The data sets concerned."""
        return {mark.dataset_id for marks in self.marks.values() for mark in marks}

    def add(self, request_id: uuid.UUID, entry: Entry) -> None:
        """Watch for these tombstones' samples, subjects and contents."""
        each = zip_longest(*map(tombstones.keys_of, entry.marks))
        for number, keys in enumerate(each, entry.number):
            self.marks[request_id].append(_Mark(number, entry.dataset_id, keys[1], entry.key_id))
            for key in keys:
                if key is not None:
                    self.keys.setdefault(key, []).append((request_id, number))

    def note(self, sample_id: str, sample_key: bytes, *others: bytes | None) -> set[uuid.UUID]:
        """Note a row for the tombstones that it falls under by these keyed hashes; the requests of those."""
        for mark in self.keys.get(sample_key, ()):
            self.sample_ids[mark] = sample_id
        keys = (sample_key, *others)
        marks = {mark for key in keys if key is not None for mark in self.keys.get(key, ())}
        self.rows.update(marks)
        return {request_id for request_id, _ in marks}


def _accept_again(
    session: Session, terms: Terms, entries: Iterator[Entry], names: Pseudonyms, watch: _Watch, actor: str
) -> None:
    """The request as it was received, with its tombstones."""
    request_id = uuid.UUID(terms.request_id)
    _ensure_caller(session, terms, actor)
    watch.marks[request_id] = []
    homes: dict[uuid.UUID, str] = {}
    for entry in entries:
        if entry.key_id != names.key_id:
            raise NotRestorable("the journal was written under another EXPUNGE_SECRET_KEY")
        watch.add(request_id, entry)
        homes[entry.dataset_id] = entry.dataset
        tombstones.write(session, request_id, entry.number, entry.dataset_id, entry.marks, entry.key_id)
    for dataset_id, name in homes.items():
        _ensure_dataset(session, dataset_id, name, actor)
    request = DeletionRequest(
        id=request_id,
        caller_id=uuid.UUID(terms.caller_id),
        external_id=terms.external_id,
        regulation=terms.regulation,
        audit_budget=terms.audit_budget,
        item_count=len(watch.marks[request_id]),
        matched_count=0,
        received_at=datetime.fromisoformat(terms.received_at),
        due_at=datetime.fromisoformat(terms.due_at),
        journaled_at=datetime.now(UTC),
    )
    session.add(request)
    events.record(
        session,
        actor=actor,
        action="restored",
        entity="DeletionRequest",
        entity_id=request_id,
        items=request.item_count,
    )


def _ensure_caller(session: Session, terms: Terms, actor: str) -> None:
    """The key that the request was posted with; one that the backup had not yet comes back revoked."""
    key_id = uuid.UUID(terms.caller_id)
    if session.get(ApiKey, key_id) is None:
        key = ApiKey(id=key_id, name=terms.caller, prefix="restored", scopes=[], created_by=actor)
        key.digest = hashlib.sha256(secrets.token_bytes(32)).digest()
        key.revoked_at = datetime.now(UTC)
        session.add(key)
        session.flush()


def _ensure_dataset(session: Session, dataset_id: uuid.UUID, name: str, actor: str) -> None:
    """The data set's row; if the backup had none yet, its tombstones wait for it to be registered again."""
    if session.get(Dataset, dataset_id) is not None:
        return
    if session.scalar(select(Dataset.id).where(Dataset.name == name)) is not None:
        raise NotRestorable(
            "a data set was registered anew since the restore: restore again, and replay before registering"
        )
    session.add(Dataset(id=dataset_id, name=name, created_by=actor))
    session.flush()


def _ready_versions(session: Session, dataset_ids: Iterable[uuid.UUID]) -> list[DatasetVersion]:
    """The versions in force; no other becomes one until this transaction ends."""
    wanted = sorted(dataset_ids)
    session.execute(select(Dataset.id).where(Dataset.id.in_(wanted)).order_by(Dataset.id).with_for_update())
    query = select(DatasetVersion).where(
        DatasetVersion.dataset_id.in_(wanted), DatasetVersion.state == DatasetState.READY
    )
    return list(session.scalars(query))


def _cover(session: Session, version: DatasetVersion, watch: _Watch, names: Pseudonyms) -> None:
    """Tie the restored tombstones to the rows of this version that they cover."""
    query = select(Sample.ordinal, Sample.sample_id, Sample.content_hash, Sample.subject_key)
    rows = session.execute(
        query.where(Sample.dataset_version_id == version.id).execution_options(yield_per=_BATCH)
    )
    covered: set[tuple[int, uuid.UUID]] = set()
    for ordinal, sample_id, content_hash, subject_key in rows:
        (key,), (content,) = names.samples(version.dataset_id, [sample_id]), names.contents([content_hash])
        covered |= {(ordinal, request) for request in watch.note(sample_id, key, content, subject_key)}
    row_sets.cover_pairs(session, version.id, covered)


def _add_items(session: Session, request_id: uuid.UUID, watch: _Watch) -> None:
    """An item a tombstone; the sample's ID is taken from the rows that were found."""
    items = [_item(request_id, mark, watch) for mark in watch.marks[request_id]]
    request = session.get_one(DeletionRequest, request_id)
    request.matched_count = sum(item["result"] is ItemResult.MATCHED for item in items)
    if items:
        session.execute(insert(DeletionItem), items)


def _item(request_id: uuid.UUID, mark: _Mark, watch: _Watch) -> dict[str, object]:
    rows = watch.rows[request_id, mark.number]
    return {
        "request_id": request_id,
        "position": mark.number,
        "dataset_id": mark.dataset_id,
        "sample_id": watch.sample_ids.get((request_id, mark.number)),
        "subject_key": mark.subject_key,
        "key_id": mark.key_id,
        "result": ItemResult.MATCHED if rows else ItemResult.NO_MATCH,
        "reason": None if rows else _UNNAMED,
        "rows": rows,
    }


def _open_targets(session: Session, request: DeletionRequest, actor: str) -> None:
    """A target for every model that has a version in use with rows of the request."""
    registry.hold_aliases(session)
    models = deletions.models_holding(session, request.id, list(row_sets.of_request(session, request.id)))
    session.add_all(Target(request_id=request.id, model_id=model_id) for model_id in models)
    deletions.finish_if_untargeted(session, request, models, actor=actor)
