"""Audit reports and the signed envelopes around them."""

from __future__ import annotations

import uuid

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, CreatedAt, Id, Json, Ordinal


class Report(Base):
    """Figures and verdict of one job, and what was published on their strength."""

    __tablename__ = "reports"

    id: Mapped[Id]
    ordinal: Mapped[Ordinal]
    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.id"), unique=True)
    model_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("models.id"))
    version_before_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"))
    version_after_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    verdict: Mapped[str]
    published: Mapped[bool]
    body: Mapped[Json]
    blobs: Mapped[Json]
    created_at: Mapped[CreatedAt]


class Attestation(Base):
    """The DSSE envelope of a report; only the publisher holds the key that signs it."""

    __tablename__ = "attestations"

    report_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("reports.id"), primary_key=True)
    envelope: Mapped[Json]
    key_id: Mapped[str]
    public_key: Mapped[str]
    created_at: Mapped[CreatedAt]
