"""Data sets, their versions and samples, and the marks that keep deleted samples out."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, SmallInteger, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, CreatedAt, Id, Json, Ordinal, Stateful, moves, state_type


class DatasetState(StrEnum):
    """Of one data set version; only a ready one can be trained on or deleted from."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    RETIRED = "retired"


class Dataset(Base):
    """A named data set; what is in it is in its versions."""

    __tablename__ = "datasets"

    id: Mapped[Id]
    ordinal: Mapped[Ordinal]
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]
    created_by: Mapped[str]


class DatasetVersion(Stateful, Base):
    """One registration: how to read the rows, and what was found in them."""

    __tablename__ = "dataset_versions"
    MOVES: ClassVar = moves(
        {
            DatasetState.PENDING: (DatasetState.READY, DatasetState.FAILED),
            DatasetState.READY: (DatasetState.RETIRED,),
        },
        DatasetState,
    )

    id: Mapped[Id]
    dataset_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("datasets.id"))
    number: Mapped[int]
    state: Mapped[DatasetState] = mapped_column(state_type(DatasetState), default=DatasetState.PENDING)
    reason: Mapped[str | None]
    reader: Mapped[str]
    location: Mapped[str]
    options: Mapped[Json]
    shares: Mapped[Json]
    seed: Mapped[int] = mapped_column(BigInteger)
    row_count: Mapped[int | None] = mapped_column(BigInteger)
    num_classes: Mapped[int | None]
    class_names: Mapped[list[Any] | None]
    image_shape: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    role_counts: Mapped[Json | None]
    role_sets: Mapped[Json | None]  # the digest in `row_sets` of each role's rows
    poison: Mapped[Json | None]  # parameters; once drawn, the rows' digest in `row_sets` and their count
    manifest: Mapped[str | None]  # the blob of all content hashes; what training reads is checked against it
    faults: Mapped[list[Any] | None]
    key_id: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    ready_at: Mapped[datetime | None]

    __table_args__ = (UniqueConstraint("dataset_id", "number"),)

    def become_ready(self, *, actor: str) -> None:
        """Every row was read, checked and loaded."""
        self._move(DatasetState.READY, actor=actor)

    def fail(self, reason: str, *, actor: str) -> None:
        """The registration found faults; `faults` lists them."""
        self._move(DatasetState.FAILED, actor=actor, reason=reason)

    def retire(self, reason: str, *, actor: str) -> None:
        """Nothing will be trained on it any more."""
        self._move(DatasetState.RETIRED, actor=actor, reason=reason)


class Sample(Base):
    """One training example. Partitioned per data set version: loaded bare, then indexed and attached."""

    __tablename__ = "samples"

    dataset_version_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    sample_id: Mapped[str] = mapped_column(Text(collation="C"))  # in no language: sorts ten times as fast
    label: Mapped[int] = mapped_column(SmallInteger)
    content_hash: Mapped[bytes]
    subject_key: Mapped[bytes | None]

    # What differs comes first: within a partition, sorting by the data set version would tell nothing.
    __table_args__ = (
        UniqueConstraint("sample_id", "dataset_version_id"),
        Index("ix_samples_subject_key", "subject_key", postgresql_where=text("subject_key IS NOT NULL")),
        Index("ix_samples_content_hash", "content_hash"),
        {"postgresql_partition_by": "LIST (dataset_version_id)"},
    )


class Tombstones(Base):
    """Marks that samples may not train again: by ID, subject and content, each as a keyed hash.

    They are there for as long as their request stands: taking it back deletes them. A request may bring a
    million and they are only ever read together, so many are one row: `number` is the first one's, and each
    kind of key that they have is joined, 32 bytes a mark.
    """

    __tablename__ = "tombstones"

    # One index serves both questions: PostgreSQL skips through the few data sets to find a request's marks.
    dataset_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    request_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    sample_keys: Mapped[bytes | None]
    subject_keys: Mapped[bytes | None]
    content_keys: Mapped[bytes | None]
    key_id: Mapped[str]


class TombstonedRows(Base):
    """Which rows of which data set version a request's tombstones cover; forget sets are read from here.

    Those of a block of ordinals (`app.datasets.rows` says how large) are one row.
    """

    __tablename__ = "tombstoned_rows"

    dataset_version_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    request_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(Integer, primary_key=True)
    ordinals: Mapped[list[int]] = mapped_column(ARRAY(Integer))


class RowBits(Base):
    """A content-addressed set of rows (models_store.rows.RowSet)."""

    __tablename__ = "row_sets"

    digest: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    bits: Mapped[bytes]
