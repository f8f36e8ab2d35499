"""Finding the samples that a deletion names, and marking them so that they never train again."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import all_, and_, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, BYTEA, INTEGER, TEXT, UUID
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.orm import Session, aliased

from app.pseudonyms import Pseudonyms
from app.tables import DatasetState, DatasetVersion, Sample, Tombstone, TombstonedRow


class Found(NamedTuple):
    """One row of one data set version that an item names."""

    position: int
    dataset_id: uuid.UUID
    version_id: uuid.UUID
    ordinal: int
    sample_id: str
    content_hash: bytes
    subject_key: bytes | None


@dataclass(frozen=True)
class Named:
    """An item to be found: a sample ID, or a subject's keyed hash; in one data set, or in any."""

    position: int
    dataset_id: uuid.UUID | None
    sample_id: str | None
    subject_key: bytes | None


def find(session: Session, items: Sequence[Named]) -> list[Found]:
    """Every row, in any version in force, that the items name; two queries however many items there are."""
    by_id = [item for item in items if item.sample_id is not None]
    by_subject = [item for item in items if item.sample_id is None]
    found = _search(session, by_id, TEXT(), "sample_id", [item.sample_id for item in by_id])
    found += _search(session, by_subject, BYTEA(), "subject_key", [item.subject_key for item in by_subject])
    return found


def _search(
    session: Session, items: Sequence[Named], kind: TEXT | BYTEA, column: str, values: Sequence[object]
) -> list[Found]:
    if not items:
        return []
    wanted = (
        func.unnest(
            literal([item.position for item in items], ARRAY(INTEGER)),
            literal([item.dataset_id for item in items], ARRAY(UUID)),
            literal(list(values), ARRAY(kind)),
        )
        .table_valued("position", "dataset_id", "value", name="wanted")
        .render_derived()
    )
    same_dataset = or_(wanted.c.dataset_id.is_(None), wanted.c.dataset_id == DatasetVersion.dataset_id)
    query = (
        select(
            wanted.c.position,
            DatasetVersion.dataset_id,
            Sample.dataset_version_id,
            Sample.ordinal,
            Sample.sample_id,
            Sample.content_hash,
            Sample.subject_key,
        )
        .join(DatasetVersion, and_(DatasetVersion.state == DatasetState.READY, same_dataset))
        .join(
            Sample,
            and_(Sample.dataset_version_id == DatasetVersion.id, getattr(Sample, column) == wanted.c.value),
        )
        .order_by(wanted.c.position, Sample.dataset_version_id, Sample.ordinal)
    )
    return [Found(*row) for row in session.execute(query)]


def bury(
    session: Session,
    *,
    request_id: uuid.UUID,
    found: Sequence[Found],
    subjects: Iterable[tuple[int, uuid.UUID, bytes]],
    names: Pseudonyms,
) -> None:
    """Mark these rows, and these subjects of these data sets, as not to be trained on again."""
    marks: dict[tuple[uuid.UUID, bytes, bytes], dict[str, Any]] = {}
    rows: list[tuple[uuid.UUID, int, uuid.UUID, bytes]] = []
    for row in found:
        key, content = names.sample(row.dataset_id, row.sample_id), names.content(row.content_hash)
        mark = _mark(request_id, row.position, row.dataset_id, names)
        mark |= {"sample_key": key, "content_key": content}
        marks.setdefault((row.dataset_id, key, content), mark)  # versions may differ in a sample's content
        rows.append((row.version_id, row.ordinal, row.dataset_id, key))
    future = [
        {**_mark(request_id, position, dataset_id, names), "subject_key": subject}
        for position, dataset_id, subject in subjects
    ]
    if marks:
        session.execute(insert(Tombstone), list(marks.values()))
        _cover(session, request_id, rows)
    if future:
        session.execute(insert(Tombstone), future)


def _mark(request_id: uuid.UUID, position: int, dataset_id: uuid.UUID, names: Pseudonyms) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "position": position,
        "dataset_id": dataset_id,
        "key_id": names.key_id,
    }


def _cover(
    session: Session, request_id: uuid.UUID, rows: Sequence[tuple[uuid.UUID, int, uuid.UUID, bytes]]
) -> None:
    """Tie the request's new tombstones to the rows they cover."""
    versions, ordinals, datasets, keys = zip(*rows, strict=True)
    covered = (
        func.unnest(
            literal(list(versions), ARRAY(UUID)),
            literal(list(ordinals), ARRAY(INTEGER)),
            literal(list(datasets), ARRAY(UUID)),
            literal(list(keys), ARRAY(BYTEA)),
        )
        .table_valued("version_id", "ordinal", "dataset_id", "sample_key", name="covered")
        .render_derived()
    )
    pairs = (
        select(covered.c.version_id, covered.c.ordinal, Tombstone.id)
        .join(
            Tombstone,
            and_(
                Tombstone.request_id == request_id,
                Tombstone.dataset_id == covered.c.dataset_id,
                Tombstone.sample_key == covered.c.sample_key,
            ),
        )
        .distinct()
    )
    session.execute(
        insert(TombstonedRow).from_select(["dataset_version_id", "ordinal", "tombstone_id"], pairs)
    )


def lift(session: Session, request_id: uuid.UUID) -> None:
    """The request was taken back: its samples may train again, unless another request names them."""
    session.execute(
        update(Tombstone)
        .where(Tombstone.request_id == request_id, Tombstone.lifted_at.is_(None))
        .values(lifted_at=datetime.now(UTC))
    )


class Watch(NamedTuple):
    """The tombstones of one data set, arranged so that rows being loaded can be checked against them."""

    samples: dict[bytes, list[int]]
    subjects: dict[bytes, list[int]]
    contents: dict[bytes, list[int]]

    def hits(self, sample_key: bytes, subject_key: bytes | None, content_key: bytes) -> set[int]:
        """The tombstones that a row with these keyed hashes falls under."""
        found = {*self.samples.get(sample_key, ()), *self.contents.get(content_key, ())}
        return found.union(self.subjects.get(subject_key, ())) if subject_key else found

    @property
    def ids(self) -> set[int]:
        """The tombstones watched for."""
        indices = (self.samples, self.subjects, self.contents)
        return {mark for index in indices for marks in index.values() for mark in marks}


def watch(session: Session, dataset_id: uuid.UUID) -> Watch:
    """The tombstones in force in this data set."""
    marks = session.execute(
        select(Tombstone.id, Tombstone.sample_key, Tombstone.subject_key, Tombstone.content_key).where(
            Tombstone.dataset_id == dataset_id, Tombstone.lifted_at.is_(None)
        )
    )
    kept = Watch({}, {}, {})
    for mark, *keys in marks:
        for index, key in zip((kept.samples, kept.subjects, kept.contents), keys, strict=True):
            if key is not None:
                index.setdefault(key, []).append(mark)
    return kept


def catch_up(session: Session, dataset_id: uuid.UUID, version_id: uuid.UUID, *, known: Watch) -> None:
    """Cover the rows of a newly loaded version that were deleted from the data set while it loaded."""
    old, new = aliased(Sample), aliased(Sample)
    arrived = and_(
        Tombstone.dataset_id == dataset_id,
        Tombstone.lifted_at.is_(None),
        Tombstone.id != all_(literal(sorted(known.ids), ARRAY(BIGINT))),
    )
    same = or_(new.sample_id == old.sample_id, new.content_hash == old.content_hash)
    by_row = (
        select(new.dataset_version_id, new.ordinal, Tombstone.id)
        .join(TombstonedRow, TombstonedRow.tombstone_id == Tombstone.id)
        .join(
            old,
            and_(
                old.dataset_version_id == TombstonedRow.dataset_version_id,
                old.ordinal == TombstonedRow.ordinal,
            ),
        )
        .join(new, and_(new.dataset_version_id == version_id, same))
        .where(arrived)
    )
    by_subject = (
        select(new.dataset_version_id, new.ordinal, Tombstone.id)
        .join(new, and_(new.dataset_version_id == version_id, new.subject_key == Tombstone.subject_key))
        .where(arrived)
    )
    columns = ["dataset_version_id", "ordinal", "tombstone_id"]
    for rows in (by_row, by_subject):
        session.execute(
            postgresql_insert(TombstonedRow).from_select(columns, rows.distinct()).on_conflict_do_nothing()
        )
