"""Sets of rows in the database: written once under their digest, read through a small cache."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from struct import Struct

from sqlalchemy import Select, any_, literal, select, text
from sqlalchemy.dialects.postgresql import ARRAY, INTEGER, insert
from sqlalchemy.orm import Session

from app.datasets.copying import copy_in
from app.tables import DatasetVersion, Job, RowBits, Sample, TombstonedRows
from models_store.rows import RowSet

# Ordinals by which covered rows are kept together: a request that names everything takes a thousandth of the
# database rows, one that names a few rows still only a few bytes each.
_BLOCK = 1024
_COVER = """
    INSERT INTO tombstoned_rows (dataset_version_id, request_id, block, ordinals)
    SELECT CAST(:version AS uuid), request_id, ordinal / :block, array_agg(DISTINCT ordinal)
    FROM ({rows}) AS covered GROUP BY request_id, ordinal / :block
"""
_PAIRS = (
    "CREATE TEMP TABLE IF NOT EXISTS covered_rows (ordinal int, request_id uuid) ON COMMIT DELETE ROWS",
    "DELETE FROM covered_rows",
)
_PAIR = Struct("!hiii16s")  # 2 columns: ordinal, request


@lru_cache(maxsize=64)
def _cached(bits: bytes) -> RowSet:
    return RowSet(bits)


def keep(session: Session, rows: RowSet) -> str:
    """Store `rows` unless they are there already; their digest."""
    values = {"digest": rows.digest, "size": len(rows), "bits": rows.bits}
    session.execute(insert(RowBits).values(values).on_conflict_do_nothing())
    return rows.digest


def read(session: Session, digest: str) -> RowSet:
    """The set of rows with this digest, which some row of ours refers to."""
    return _cached(session.scalars(select(RowBits.bits).where(RowBits.digest == digest)).one())


def of_role(session: Session, version: DatasetVersion, role: str) -> RowSet:
    """The rows of a data set version, which was read, that have this role."""
    digest = (version.role_sets or {}).get(role)
    return read(session, digest) if digest is not None else RowSet(b"")


def poisoned(session: Session, version: DatasetVersion) -> RowSet:
    """The rows of a data set version, which was read, that are poisoned."""
    digest = (version.poison or {}).get("rows")
    return read(session, digest) if digest is not None else RowSet(b"")


def tombstoned(session: Session, version_id: uuid.UUID) -> RowSet:
    """The rows of a data set version that may not train, since a request that stands names them."""
    return _joined(session, _blocks(version_id))


def holds_deleted(session: Session, job: Job) -> bool:
    """Whether one of the rows that a job trains on, or has trained on, may not train any more."""
    if job.rows_digest is None or job.dataset_version_id is None:
        raise ValueError("a job that trains names its rows")
    return len(read(session, job.rows_digest) & tombstoned(session, job.dataset_version_id)) > 0


def cover(session: Session, version_id: uuid.UUID, rows: str, **values: object) -> None:
    """Bar rows of a data set version from training for requests that do not yet cover any row of it.

    `rows` is a query for columns `request_id` and `ordinal`, which may repeat themselves.
    """
    values |= {"version": version_id, "block": _BLOCK}
    session.execute(text(_COVER.format(rows=rows)), values)


def cover_pairs(session: Session, version_id: uuid.UUID, pairs: Iterable[tuple[int, uuid.UUID]]) -> None:
    """Bar these rows from training, each for a request that does not yet cover any row of the version."""
    for statement in _PAIRS:
        session.execute(text(statement))
    packed = (_PAIR.pack(2, 4, ordinal, 16, request_id.bytes) for ordinal, request_id in pairs)
    copy_in(session, "covered_rows", "ordinal, request_id", packed)
    cover(session, version_id, "SELECT request_id, ordinal FROM covered_rows")


def covers_any(session: Session, request_id: uuid.UUID, version_id: uuid.UUID, rows: RowSet) -> bool:
    """Whether a request covers any of these rows; mostly the first one that is looked at is among them."""
    query = _blocks(version_id).where(TombstonedRows.request_id == request_id)
    with session.scalars(query, execution_options={"yield_per": 10}) as blocks:
        return any(ordinal in rows for block in blocks for ordinal in block)


def of_request(session: Session, request_id: uuid.UUID) -> dict[uuid.UUID, RowSet]:
    """The rows that one request asks to have forgotten, by data set version."""
    covered = TombstonedRows.request_id == request_id
    versions = session.scalars(select(TombstonedRows.dataset_version_id).where(covered).distinct()).all()
    return {version_id: _joined(session, _blocks(version_id).where(covered)) for version_id in versions}


def _blocks(version_id: uuid.UUID) -> Select[list[int]]:
    return select(TombstonedRows.ordinals).where(TombstonedRows.dataset_version_id == version_id)


def _joined(session: Session, blocks: Select[list[int]]) -> RowSet:
    found = session.scalars(blocks.execution_options(yield_per=100))
    return RowSet.of(chain.from_iterable(found))


def kin(session: Session, version: DatasetVersion, forget: RowSet) -> RowSet:
    """All rows of the very people whose rows are to be forgotten: never-trained ones compare best."""
    here = Sample.dataset_version_id == version.id
    people = select(Sample.subject_key).where(
        here,
        Sample.ordinal == any_(literal(list(forget), ARRAY(INTEGER))),  # IN takes 65,535 at most
        Sample.subject_key.is_not(None),
    )
    theirs = session.scalars(select(Sample.ordinal).where(here, Sample.subject_key.in_(people)))
    return RowSet.of(theirs)
