"""Marking samples so that they never train again, and finding those marks in data that comes later."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets.copying import driver
from app.datasets.matching import Matches
from app.pseudonyms import KEY_SIZE, Pseudonyms
from app.tables import Dataset, TombstonedRows, Tombstones

_TOGETHER = 5_000  # marks in one row of the table
_NOBODY = frozenset[uuid.UUID]()
_SAMPLES = "SELECT {distinct} sample_id, content_hash FROM matched_rows WHERE dataset_id = %s"
_SUBJECTS = "SELECT DISTINCT subject_key FROM matched_rows WHERE dataset_id = %s AND subject_key IS NOT NULL"
_MATCHED = """
    SELECT CAST(:request AS uuid) AS request_id, ordinal FROM matched_rows WHERE dataset_version_id = :version
"""
# Rows of a version like those that a request covers in another one, or about its subjects.
_ALIKE = """
    SELECT t.request_id, new.ordinal
    FROM tombstoned_rows t CROSS JOIN unnest(t.ordinals) AS covered
    JOIN samples old ON old.dataset_version_id = t.dataset_version_id AND old.ordinal = covered
    JOIN samples new ON new.dataset_version_id = CAST(:version AS uuid)
        AND (new.sample_id = old.sample_id OR new.content_hash = old.content_hash)
    WHERE t.request_id = :request
    UNION ALL
    SELECT t.request_id, new.ordinal
    FROM tombstones t CROSS JOIN generate_series(1, length(t.subject_keys), :size) AS place
    JOIN samples new ON new.dataset_version_id = CAST(:version AS uuid)
        AND new.subject_key = substring(t.subject_keys FROM place FOR :size)
    WHERE t.request_id = :request AND t.dataset_id = :dataset
"""


class Marks(NamedTuple):
    """Some marks' keyed hashes of samples, subjects and contents, joined; None of what they do not mark."""

    sample_keys: bytes | None
    subject_keys: bytes | None
    content_keys: bytes | None

    def __len__(self) -> int:
        return max(len(keys or b"") for keys in self) // KEY_SIZE


def keys_of(joined: bytes | None) -> Iterator[bytes]:
    """The keys that were joined."""
    for start in range(0, len(joined or b""), KEY_SIZE):
        yield (joined or b"")[start : start + KEY_SIZE]


def bury(session: Session, matches: Matches, request_id: uuid.UUID, names: Pseudonyms) -> None:
    """Bar the samples that were matched from training, for this request.

    Each sample is marked by ID and content; each subject that was named also by itself, so that what data
    will hold about them later is barred too. Versions may differ in a sample's content: both are marked.
    """
    number = 0
    for home in set(matches.homes.values()):
        for marks in _marks(session, matches, home, names):
            write(session, request_id, number, home, marks, names.key_id)
            number += len(marks)
    for version_id in matches.homes:
        row_sets.cover(session, version_id, _MATCHED, request=request_id)


def _marks(session: Session, matches: Matches, home: uuid.UUID, names: Pseudonyms) -> Iterator[Marks]:
    """The marks of what was matched in one data set; a sample that is named twice may be marked twice."""
    query = _SAMPLES.format(distinct="" if matches.rows_each == 1 else "DISTINCT")
    for rows in _fetched(session, query, home):
        sample_ids, contents = zip(*dict.fromkeys(rows), strict=True)
        samples = names.samples(home, sample_ids)
        yield Marks(b"".join(samples), None, b"".join(names.contents(contents)))
    for rows in _fetched(session, _SUBJECTS, home):
        yield Marks(None, b"".join(subject for (subject,) in rows), None)


def _fetched(session: Session, query: str, home: uuid.UUID) -> Iterator[list[Any]]:
    """The rows of a query in batches, through a cursor of the server, so that few are here at a time."""
    with driver(session).cursor(name="tombstones", binary=True) as cursor:
        cursor.execute(query, [home])
        while rows := cursor.fetchmany(_TOGETHER):
            yield rows


def write(
    session: Session, request_id: uuid.UUID, number: int, dataset_id: uuid.UUID, marks: Marks, key_id: str
) -> None:
    """Write marks of one data set as this request's from `number` on."""
    values = {"request_id": request_id, "number": number, "dataset_id": dataset_id, "key_id": key_id}
    session.execute(insert(Tombstones).values(**values, **marks._asdict()))


def lift(session: Session, request_id: uuid.UUID) -> None:
    """The request stands no more: its samples may train again, unless another request names them.

    It waits for a version of its data sets that is being attached, whose rows it may cover.
    """
    homes = select(Tombstones.dataset_id).where(Tombstones.request_id == request_id)
    session.scalars(
        select(Dataset.id).where(Dataset.id.in_(homes)).order_by(Dataset.id).with_for_update(read=True)
    ).all()
    for table in (TombstonedRows, Tombstones):
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
    columns = Tombstones.sample_keys, Tombstones.subject_keys, Tombstones.content_keys
    written = session.execute(
        select(Tombstones.request_id, *columns)
        .where(Tombstones.dataset_id == dataset_id)
        .execution_options(yield_per=10)
    )
    kept = Watch({}, {}, {})
    alone: dict[uuid.UUID, frozenset[uuid.UUID]] = {}  # one set for the million keys of a request
    for request_id, *joined in written:
        requests = alone.setdefault(request_id, frozenset({request_id}))
        for index, keys in zip(kept, joined, strict=True):
            for key in keys_of(keys):
                index[key] = index[key] | requests if key in index else requests
    return kept


def catch_up(session: Session, dataset_id: uuid.UUID, version_id: uuid.UUID, *, known: Watch) -> None:
    """Cover the rows of a newly loaded version that were deleted from the data set while it loaded."""
    requests = select(Tombstones.request_id).where(Tombstones.dataset_id == dataset_id).distinct()
    for request_id in set(session.scalars(requests)) - known.requests:
        row_sets.cover(session, version_id, _ALIKE, request=request_id, dataset=dataset_id, size=KEY_SIZE)
