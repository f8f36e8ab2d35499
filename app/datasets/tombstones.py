"""Marking samples so that they never train again, and finding those marks in data that comes later."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, NamedTuple

from sqlalchemy import and_, delete, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from app.datasets.copying import copy_in, driver, field
from app.datasets.matching import Matches
from app.pseudonyms import Pseudonyms
from app.tables import Dataset, Sample, Tombstone, TombstonedRow

_BATCH = 5_000
_NOBODY = frozenset[uuid.UUID]()
_SAMPLES = "SELECT DISTINCT sample_id, content_hash FROM matched_rows WHERE dataset_id = %s"
_SUBJECTS = "SELECT DISTINCT subject_key FROM matched_rows WHERE dataset_id = %s AND subject_key IS NOT NULL"
_HEAD = Struct("!hi16siii16s")  # 7 columns; request, number, data set
# A version at a time, and in the order of its rows: sorting their numbers is quick, and so is a sorted index.
_COVER = """
    INSERT INTO tombstoned_rows (dataset_version_id, request_id, ordinal)
    SELECT CAST(:version AS uuid), CAST(:request AS uuid), ordinal FROM matched_rows
    WHERE dataset_version_id = :version GROUP BY ordinal ORDER BY ordinal
"""


def bury(session: Session, matches: Matches, request_id: uuid.UUID, names: Pseudonyms) -> None:
    """Bar the samples that were matched from training, for this request.

    Each sample is marked by ID and content; each subject that was named also by itself, so that what data
    will hold about them later is barred too. Versions may differ in a sample's content: both are marked.
    """
    writer = _Writer(session, request_id, field(names.key_id.encode()))
    for home in set(matches.homes.values()):
        for rows in _fetched(session, _SAMPLES, home):
            writer.write(
                home,
                [
                    (names.sample(home, sample_id), None, names.content(content))
                    for sample_id, content in rows
                ],
            )
        for rows in _fetched(session, _SUBJECTS, home):
            writer.write(home, [(None, subject, None) for (subject,) in rows])
    for version_id in matches.homes:
        session.execute(text(_COVER), {"request": request_id, "version": version_id})


def _fetched(session: Session, query: str, home: uuid.UUID) -> Iterator[list[Any]]:
    """The rows of a query in batches, through a cursor of the server, so that few are here at a time."""
    with driver(session).cursor(name="tombstones", binary=True) as cursor:
        cursor.execute(query, [home])
        while rows := cursor.fetchmany(_BATCH):
            yield rows


class _Writer:
    """Writes one request's tombstones, numbered through."""

    def __init__(self, session: Session, request_id: uuid.UUID, key_id: bytes) -> None:
        self._session, self._request, self._key_id = session, request_id.bytes, key_id
        self._count = 0

    def write(
        self, home: uuid.UUID, marks: Sequence[tuple[bytes | None, bytes | None, bytes | None]]
    ) -> None:
        """Write marks of one data set: keyed hashes of sample, subject and content."""
        columns = "request_id, number, dataset_id, sample_key, subject_key, content_key, key_id"
        pieces: list[bytes] = []
        for number, (sample, subject, content) in enumerate(marks, self._count):
            head = _HEAD.pack(7, 16, self._request, 4, number, 16, home.bytes)
            pieces += (head, field(sample), field(subject), field(content), self._key_id)
        self._count += len(marks)
        copy_in(self._session, "tombstones", columns, [b"".join(pieces)])


def lift(session: Session, request_id: uuid.UUID) -> None:
    """The request stands no more: its samples may train again, unless another request names them.

    It waits for a version of its data sets that is being attached, whose rows it may cover.
    """
    homes = select(Tombstone.dataset_id).where(Tombstone.request_id == request_id)
    session.scalars(
        select(Dataset.id).where(Dataset.id.in_(homes)).order_by(Dataset.id).with_for_update(read=True)
    ).all()
    for table in (TombstonedRow, Tombstone):
        session.execute(
            delete(table).where(table.request_id == request_id),
            execution_options={"synchronize_session": False},
        )


class Watch(NamedTuple):
    """The tombstones of one data set, arranged so that rows being loaded can be checked against them."""

    samples: dict[bytes, frozenset[uuid.UUID]]
    subjects: dict[bytes, frozenset[uuid.UUID]]
    contents: dict[bytes, frozenset[uuid.UUID]]

    def hits(self, sample_key: bytes, subject_key: bytes | None, content_key: bytes) -> frozenset[uuid.UUID]:
        """The requests under whose tombstones a row with these keyed hashes falls."""
        found = self.samples.get(sample_key, _NOBODY) | self.contents.get(content_key, _NOBODY)
        return found | self.subjects.get(subject_key, _NOBODY) if subject_key else found

    @property
    def requests(self) -> set[uuid.UUID]:
        """The requests whose tombstones are watched for."""
        return {request for index in self for marks in index.values() for request in marks}


def watch(session: Session, dataset_id: uuid.UUID) -> Watch:
    """The tombstones that stand in this data set."""
    marks = session.execute(
        select(Tombstone.request_id, Tombstone.sample_key, Tombstone.subject_key, Tombstone.content_key)
        .where(Tombstone.dataset_id == dataset_id)
        .execution_options(yield_per=_BATCH)
    )
    kept = Watch({}, {}, {})
    alone: dict[uuid.UUID, frozenset[uuid.UUID]] = {}  # one set for the million keys of a request
    for request_id, *keys in marks:
        requests = alone.setdefault(request_id, frozenset({request_id}))
        for index, key in zip(kept, keys, strict=True):
            if key is not None:
                index[key] = index[key] | requests if key in index else requests
    return kept


def catch_up(session: Session, dataset_id: uuid.UUID, version_id: uuid.UUID, *, known: Watch) -> None:
    """Cover the rows of a newly loaded version that were deleted from the data set while it loaded."""
    seen = known.requests
    requests = select(Tombstone.request_id).where(Tombstone.dataset_id == dataset_id).distinct()
    for request_id in set(session.scalars(requests)) - seen:
        _cover_alike(session, request_id, dataset_id, version_id)


def _cover_alike(
    session: Session, request_id: uuid.UUID, dataset_id: uuid.UUID, version_id: uuid.UUID
) -> None:
    """Cover the version's rows that are like rows the request covers elsewhere, or about its subjects."""
    old, new = aliased(Sample), aliased(Sample)
    same = or_(new.sample_id == old.sample_id, new.content_hash == old.content_hash)
    by_row = (
        select(new.dataset_version_id, new.ordinal, TombstonedRow.request_id)
        .join(
            old,
            and_(
                old.dataset_version_id == TombstonedRow.dataset_version_id,
                old.ordinal == TombstonedRow.ordinal,
            ),
        )
        .join(new, and_(new.dataset_version_id == version_id, same))
        .where(TombstonedRow.request_id == request_id)
    )
    by_subject = (
        select(new.dataset_version_id, new.ordinal, Tombstone.request_id)
        .join(new, and_(new.dataset_version_id == version_id, new.subject_key == Tombstone.subject_key))
        .where(Tombstone.request_id == request_id, Tombstone.dataset_id == dataset_id)
    )
    columns = ["dataset_version_id", "ordinal", "request_id"]
    for rows in (by_row, by_subject):
        session.execute(insert(TombstonedRow).from_select(columns, rows.distinct()).on_conflict_do_nothing())
