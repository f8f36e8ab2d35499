"""Jobs: one unit of computation each, with its lease, its progress and the blobs it made."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, CreatedAt, Id, Json, Ordinal, Stateful, moves, state_type


class JobKind(StrEnum):
    """What a job computes."""

    INGEST = "ingest"
    VALIDATE = "validate"  # an uploaded model version
    TRAIN = "train"
    UNLEARN = "unlearn"
    REFERENCE = "reference"
    SHADOW = "shadow"  # trained on a random share of a version's rows, to see what each row changes
    ESTIMATE = "estimate"  # of memorisation, from a version's shadows
    AUDIT = "audit"
    COMPARE = "compare"
    PROBE = "probe"  # what forgetting would take, before anything is deleted
    READINESS = "readiness"  # how hard deletions from a version will be, whatever they name


class JobState(StrEnum):
    """From the queue to one of four ends."""

    QUEUED = "queued"
    WAITING = "waiting"  # for other jobs, without holding a worker
    RUNNING = "running"
    AUDITED = "audited"  # the computation is over; the publisher has the word
    AWAITING_APPROVAL = "awaiting_approval"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  # its rung did not publish


LIVE = (
    JobState.QUEUED,
    JobState.WAITING,
    JobState.RUNNING,
    JobState.AUDITED,
    JobState.AWAITING_APPROVAL,
)
PATIENT = (JobKind.SHADOW, JobKind.ESTIMATE)  # come by the hundred, and let everything else pass
_LIVE_UNLEARN = "kind = 'unlearn' AND state IN ('queued','waiting','running','audited','awaiting_approval')"


class Job(Stateful, Base):
    """The row that decides: the broker only wakes a worker, which then has to claim it here."""

    __tablename__ = "jobs"
    MOVES: ClassVar = moves(
        {
            JobState.QUEUED: (JobState.RUNNING, JobState.CANCELLED, JobState.FAILED),
            JobState.WAITING: (JobState.QUEUED, JobState.CANCELLED, JobState.FAILED),
            JobState.RUNNING: (
                JobState.QUEUED,
                JobState.WAITING,
                JobState.AUDITED,
                JobState.FAILED,
                JobState.CANCELLED,
            ),
            JobState.AUDITED: (
                JobState.DONE,
                JobState.AWAITING_APPROVAL,
                JobState.SUPERSEDED,
                JobState.FAILED,
                JobState.QUEUED,
                JobState.CANCELLED,
            ),
            JobState.AWAITING_APPROVAL: (JobState.DONE, JobState.SUPERSEDED, JobState.CANCELLED),
        },
        JobState,
    )

    id: Mapped[Id]
    ordinal: Mapped[Ordinal]
    kind: Mapped[JobKind] = mapped_column(state_type(JobKind))
    state: Mapped[JobState] = mapped_column(state_type(JobState), default=JobState.QUEUED)
    reason: Mapped[str | None]
    queue: Mapped[str] = mapped_column(default="jobs")

    model_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("models.id"))
    version_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    dataset_version_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("dataset_versions.id"))
    policy_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("policy_versions.id"))
    policy: Mapped[Json | None]  # the copy the job runs under
    parameters: Mapped[Json]  # what the caller or the planner asked for
    rung: Mapped[int | None]
    seed: Mapped[int] = mapped_column(BigInteger)
    forget_digest: Mapped[str | None] = mapped_column(ForeignKey("row_sets.digest"))
    rows_digest: Mapped[str | None] = mapped_column(ForeignKey("row_sets.digest"))
    has_waited: Mapped[bool] = mapped_column(default=False)  # for others, which it does only once

    attempt: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int] = mapped_column(default=5)
    lease_token: Mapped[int] = mapped_column(default=0)  # fencing: a write under an older one is refused
    lease_owner: Mapped[str | None]
    lease_expires_at: Mapped[datetime | None]
    not_before: Mapped[datetime | None]
    published_at: Mapped[datetime | None]  # when a worker was last woken for it
    cancel_requested_at: Mapped[datetime | None]
    cancel_actor: Mapped[str | None]

    checkpoint: Mapped[Json | None]
    outcome: Mapped[Json | None]
    settled_at: Mapped[datetime | None]  # the consequences of its end were drawn
    created_at: Mapped[CreatedAt]
    created_by: Mapped[str]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        Index(
            "uq_jobs_one_live_unlearn_per_model",
            "model_id",
            unique=True,
            postgresql_where=text(_LIVE_UNLEARN),
        ),
        Index("ix_jobs_state", "state", postgresql_where=text("settled_at IS NULL")),
    )

    def _move(self, to: StrEnum, *, actor: str, reason: str | None = None) -> None:
        super()._move(to, actor=actor, reason=reason)
        self.finished_at = datetime.now(UTC) if self.is_final else None

    def start(self, *, actor: str) -> None:
        """A worker claimed it."""
        self._move(JobState.RUNNING, actor=actor)

    def requeue(self, reason: str | None, *, actor: str) -> None:
        """Back to the queue: its worker died, what it waited for has ended, or its rows have changed."""
        self._move(JobState.QUEUED, actor=actor, reason=reason)

    def wait(self, reason: str, *, actor: str) -> None:
        """For other jobs, without holding a worker."""
        self._move(JobState.WAITING, actor=actor, reason=reason)

    def finish_computing(self, *, actor: str) -> None:
        """The figures are there; whether anything is published is not this job's to say."""
        self._move(JobState.AUDITED, actor=actor)

    def await_approval(self, reason: str, *, actor: str) -> None:
        """The policy wants a named person to decide."""
        self._move(JobState.AWAITING_APPROVAL, actor=actor, reason=reason)

    def finish(self, reason: str | None, *, actor: str) -> None:
        """Its result is in force."""
        self._move(JobState.DONE, actor=actor, reason=reason)

    def fail(self, reason: str, *, actor: str) -> None:
        """It cannot be done; `reason` says why, without naming a sample."""
        self._move(JobState.FAILED, actor=actor, reason=reason)

    def cancel(self, reason: str, *, actor: str) -> None:
        """Somebody no longer wants it."""
        self._move(JobState.CANCELLED, actor=actor, reason=reason)

    def supersede(self, reason: str, *, actor: str) -> None:
        """Its rung did not publish; the next one follows."""
        self._move(JobState.SUPERSEDED, actor=actor, reason=reason)


class JobWait(Base):
    """A job waits, or has waited, until another one has ended."""

    __tablename__ = "job_waits"

    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    other_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.id"), primary_key=True, index=True)


class JobProgress(Base):
    """Where a running job stands; its own narrow row, since it is written every second."""

    __tablename__ = "job_progress"

    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    phase: Mapped[str]
    done: Mapped[int]
    total: Mapped[int]
    figures: Mapped[Json]
    updated_at: Mapped[CreatedAt]


class Artefact(Base):
    """A blob that a job derived from rows of a data set, so that it can be found when those rows must go."""

    __tablename__ = "artefacts"

    digest: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    dataset_version_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("dataset_versions.id"))
    rows_digest: Mapped[str | None] = mapped_column(ForeignKey("row_sets.digest"))
    created_at: Mapped[CreatedAt]
