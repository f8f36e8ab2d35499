"""Sets of rows in the database: written once under their digest, read through a small cache."""

from __future__ import annotations

import uuid
from functools import lru_cache

from sqlalchemy import any_, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, INTEGER, insert
from sqlalchemy.orm import Session

from app.tables import RowBits, Sample, Tombstone, TombstonedRow
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


def of_role(session: Session, version_id: uuid.UUID, role: str) -> RowSet:
    """The rows of a data set version that have this role."""
    query = select(Sample.ordinal).where(Sample.dataset_version_id == version_id, Sample.role == role)
    return RowSet.of(session.scalars(query))


def tombstoned(session: Session, version_id: uuid.UUID) -> RowSet:
    """The rows of a data set version that may not train: those under a tombstone that is in force."""
    query = (
        select(TombstonedRow.ordinal)
        .join(Tombstone, Tombstone.id == TombstonedRow.tombstone_id)
        .where(TombstonedRow.dataset_version_id == version_id, Tombstone.lifted_at.is_(None))
    )
    return RowSet.of(session.scalars(query))


def of_request(session: Session, request_id: uuid.UUID) -> dict[uuid.UUID, RowSet]:
    """The rows that one request asks to have forgotten, by data set version."""
    query = (
        select(TombstonedRow.dataset_version_id, TombstonedRow.ordinal)
        .join(Tombstone, Tombstone.id == TombstonedRow.tombstone_id)
        .where(Tombstone.request_id == request_id, Tombstone.lifted_at.is_(None))
    )
    ordinals: dict[uuid.UUID, list[int]] = {}
    for version_id, ordinal in session.execute(query):
        ordinals.setdefault(version_id, []).append(ordinal)
    return {version_id: RowSet.of(found) for version_id, found in ordinals.items()}


def kin_holdout(session: Session, version_id: uuid.UUID, forget: RowSet) -> RowSet:
    """Never-trained rows of the very people whose rows are to be forgotten: the best comparison there is."""
    people = select(Sample.subject_key).where(
        Sample.dataset_version_id == version_id,
        Sample.ordinal == any_(literal(list(forget), ARRAY(INTEGER))),  # IN takes 65,535 at most
        Sample.subject_key.is_not(None),
    )
    query = select(Sample.ordinal).where(
        Sample.dataset_version_id == version_id, Sample.role == "holdout", Sample.subject_key.in_(people)
    )
    return RowSet.of(session.scalars(query))
