"""Sets of rows in the database: written once under their digest, read through a small cache."""

from __future__ import annotations

import uuid
from functools import lru_cache

from sqlalchemy import any_, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, INTEGER, insert
from sqlalchemy.orm import Session

from app.tables import DatasetVersion, RowBits, Sample, TombstonedRow
from models_store.rows import RowSet


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


def tombstoned(session: Session, version_id: uuid.UUID) -> RowSet:
    """The rows of a data set version that may not train, since a request that stands names them."""
    query = select(TombstonedRow.ordinal).where(TombstonedRow.dataset_version_id == version_id)
    return RowSet.of(session.scalars(query.execution_options(yield_per=10_000)))


def covers_any(session: Session, request_id: uuid.UUID, version_id: uuid.UUID, rows: RowSet) -> bool:
    """Whether a request covers any of these rows; mostly the first one that is looked at is among them."""
    query = select(TombstonedRow.ordinal).where(
        TombstonedRow.request_id == request_id, TombstonedRow.dataset_version_id == version_id
    )
    with session.execute(query, execution_options={"yield_per": 1_000}) as found:
        return any(ordinal in rows for ordinal in found.scalars())


def of_request(session: Session, request_id: uuid.UUID) -> dict[uuid.UUID, RowSet]:
    """The rows that one request asks to have forgotten, by data set version."""
    covered = TombstonedRow.request_id == request_id
    versions = session.scalars(select(TombstonedRow.dataset_version_id).where(covered).distinct()).all()
    return {
        version_id: RowSet.of(
            session.scalars(
                select(TombstonedRow.ordinal)
                .where(covered, TombstonedRow.dataset_version_id == version_id)
                .execution_options(yield_per=10_000)
            )
        )
        for version_id in versions
    }


def kin_holdout(session: Session, version: DatasetVersion, forget: RowSet) -> RowSet:
    """Never-trained rows of the very people whose rows are to be forgotten: the best comparison there is."""
    here = Sample.dataset_version_id == version.id
    people = select(Sample.subject_key).where(
        here,
        Sample.ordinal == any_(literal(list(forget), ARRAY(INTEGER))),  # IN takes 65,535 at most
        Sample.subject_key.is_not(None),
    )
    theirs = session.scalars(select(Sample.ordinal).where(here, Sample.subject_key.in_(people)))
    return RowSet.of(theirs) & of_role(session, version, "holdout")
