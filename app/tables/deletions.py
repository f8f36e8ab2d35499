"""Deletion requests, the items they name, and what has to be done for each model."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, CreatedAt, Id, Ordinal, Stateful, moves, state_type


class RequestState(StrEnum):
    """Of a deletion request."""

    RECEIVED = "received"
    IN_PROGRESS = "in_progress"
    ON_HOLD = "on_hold"
    COMPLETED = "completed"
    PARTLY_COMPLETED = "partly_completed"
    DENIED = "denied"
    CANCELLED = "cancelled"


class DeletionRequest(Stateful, Base):
    """What a caller posted; it is finished when each of its targets is."""

    __tablename__ = "deletion_requests"
    MOVES: ClassVar = moves(
        {
            RequestState.RECEIVED: (
                RequestState.IN_PROGRESS,
                RequestState.ON_HOLD,
                RequestState.COMPLETED,
                RequestState.PARTLY_COMPLETED,
                RequestState.DENIED,
                RequestState.CANCELLED,
            ),
            RequestState.IN_PROGRESS: (
                RequestState.RECEIVED,
                RequestState.ON_HOLD,
                RequestState.COMPLETED,
                RequestState.PARTLY_COMPLETED,
            ),
            RequestState.ON_HOLD: (RequestState.RECEIVED, RequestState.IN_PROGRESS, RequestState.CANCELLED),
            RequestState.PARTLY_COMPLETED: (RequestState.RECEIVED, RequestState.IN_PROGRESS),
        },
        RequestState,
    )

    id: Mapped[Id]
    ordinal: Mapped[Ordinal]
    caller_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("api_keys.id"))
    external_id: Mapped[str | None]
    regulation: Mapped[str]
    state: Mapped[RequestState] = mapped_column(state_type(RequestState), default=RequestState.RECEIVED)
    reason: Mapped[str | None]
    audit_budget: Mapped[int] = mapped_column(default=0)
    item_count: Mapped[int]
    matched_count: Mapped[int]
    received_at: Mapped[CreatedAt]
    due_at: Mapped[datetime]
    extended_at: Mapped[datetime | None]
    extension_reason: Mapped[str | None]
    held_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    journaled_at: Mapped[datetime | None]  # when the journal last showed whether it stands

    __table_args__ = (
        UniqueConstraint("caller_id", "external_id"),
        Index(None, "state", "due_at"),
        Index("ix_deletion_requests_unjournaled", "ordinal", postgresql_where=text("journaled_at IS NULL")),
    )

    def begin(self, *, actor: str) -> None:
        """A job for it was claimed: from here on it cannot be taken back."""
        self._move(RequestState.IN_PROGRESS, actor=actor)

    def go_back_to_received(self, reason: str, *, actor: str) -> None:
        """The job that carried it ended without deciding, so nothing has been done yet."""
        self._move(RequestState.RECEIVED, actor=actor, reason=reason)

    def complete(self, reason: str | None, *, actor: str) -> None:
        """No aliased version of any model holds its rows."""
        self._move(RequestState.COMPLETED, actor=actor, reason=reason)

    def complete_partly(self, reason: str, *, actor: str) -> None:
        """Every target has ended, but not every one well."""
        self._move(RequestState.PARTLY_COMPLETED, actor=actor, reason=reason)

    def deny(self, reason: str, *, actor: str) -> None:
        """Refused by somebody entitled to, before anything was done; its tombstones are lifted with it."""
        self._move(RequestState.DENIED, actor=actor, reason=reason)
        self.journaled_at = None

    def cancel(self, reason: str, *, actor: str) -> None:
        """Taken back while pending; its tombstones are lifted with it."""
        self._move(RequestState.CANCELLED, actor=actor, reason=reason)
        self.journaled_at = None


class ItemResult(StrEnum):
    """What was found for one item; an unknown one is kept and says so."""

    MATCHED = "matched"
    NO_MATCH = "no_match"


class DeletionItem(Base):
    """One thing a request names. No foreign keys: a request may name a million."""

    __tablename__ = "deletion_items"

    request_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[uuid.UUID | None]
    sample_id: Mapped[str | None]
    subject_key: Mapped[bytes | None]
    key_id: Mapped[str]
    result: Mapped[ItemResult] = mapped_column(state_type(ItemResult))
    reason: Mapped[str | None]
    rows: Mapped[int]


class TargetState(StrEnum):
    """Of what one request means for one model."""

    OPEN = "open"
    PLANNED = "planned"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    ALREADY_ABSENT = "already_absent"
    RETIRED = "retired"
    FAILED = "failed"


class Target(Stateful, Base):
    """Request x model: what has to be done, and which job does it."""

    __tablename__ = "targets"
    MOVES: ClassVar = moves(
        {
            TargetState.OPEN: (
                TargetState.PLANNED,
                TargetState.ALREADY_ABSENT,
                TargetState.RETIRED,
                TargetState.COMPLETED,
                TargetState.FAILED,
            ),
            TargetState.PLANNED: (
                TargetState.OPEN,
                TargetState.RUNNING,
                TargetState.ALREADY_ABSENT,
                TargetState.RETIRED,
                TargetState.FAILED,
            ),
            TargetState.RUNNING: (
                TargetState.OPEN,
                TargetState.AWAITING_APPROVAL,
                TargetState.RETIRED,
                TargetState.COMPLETED,
                TargetState.FAILED,
            ),
            TargetState.AWAITING_APPROVAL: (
                TargetState.RUNNING,
                TargetState.OPEN,
                TargetState.RETIRED,
                TargetState.COMPLETED,
                TargetState.FAILED,
            ),
            TargetState.FAILED: (TargetState.OPEN, TargetState.RETIRED),
        },
        TargetState,
    )

    id: Mapped[Id]
    request_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("deletion_requests.id"))
    model_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("models.id"))
    state: Mapped[TargetState] = mapped_column(state_type(TargetState), default=TargetState.OPEN)
    reason: Mapped[str | None]
    job_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("jobs.id"), index=True)
    opened_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]

    __table_args__ = (UniqueConstraint("request_id", "model_id"), Index(None, "model_id", "state"))

    def plan(self, job_id: uuid.UUID, *, actor: str) -> None:
        """Joined to the job that will carry it out."""
        self.job_id = job_id
        self._move(TargetState.PLANNED, actor=actor)

    def run(self, *, actor: str) -> None:
        """Its rows are in the forget set of a claimed job."""
        self._move(TargetState.RUNNING, actor=actor)

    def await_approval(self, *, actor: str) -> None:
        """Its job waits for a named approver."""
        self._move(TargetState.AWAITING_APPROVAL, actor=actor)

    def reopen(self, reason: str, *, actor: str) -> None:
        """To be planned again: the job did not decide it, or somebody asked for another try."""
        self._move(TargetState.OPEN, actor=actor, reason=reason)

    def complete(self, reason: str | None, *, actor: str) -> None:
        """No alias of the model names a version that holds its rows."""
        self._move(TargetState.COMPLETED, actor=actor, reason=reason)

    def be_absent(self, reason: str, *, actor: str) -> None:
        """The rows had left the model before this request's turn came."""
        self._move(TargetState.ALREADY_ABSENT, actor=actor, reason=reason)

    def retire(self, reason: str, *, actor: str) -> None:
        """The model or the request is no longer in force."""
        self._move(TargetState.RETIRED, actor=actor, reason=reason)

    def fail(self, reason: str, *, actor: str) -> None:
        """Every rung was tried; it can be retried by name."""
        self._move(TargetState.FAILED, actor=actor, reason=reason)
