"""How the API shows jobs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.tables import Job, JobKind, JobProgress, JobState
from app.text import Text


class Progress(BaseModel):
    """Where a job stands; `done` of `total` steps of its present phase."""

    model_config = ConfigDict(from_attributes=True)
    phase: str = Field(examples=["unlearning"])
    done: int
    total: int
    figures: dict[str, Any]
    updated_at: datetime


class JobView(BaseModel):
    """One unit of computation."""

    model_config = ConfigDict(from_attributes=True)
    id: uuid.UUID
    kind: JobKind
    state: JobState
    reason: str | None
    model_id: uuid.UUID | None
    version_id: uuid.UUID | None
    dataset_version_id: uuid.UUID | None
    parameters: dict[str, Any]
    rung: int | None
    attempt: int
    waits_for: list[uuid.UUID] = Field(
        default_factory=list, description="The jobs that it waits for, or has waited for."
    )
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        job: Job,
        progress: Mapping[uuid.UUID, JobProgress],
        waits: Mapping[uuid.UUID, list[uuid.UUID]],
    ) -> JobView:
        """The job with its progress row, if it has one, and what it waits for."""
        view = cls.model_validate(job, from_attributes=True)
        row = progress.get(job.id)
        shown = Progress.model_validate(row) if row else None
        return view.model_copy(update={"progress": shown, "waits_for": waits.get(job.id, [])})


class Reason(BaseModel):
    """Why; kept in the audit log, so it must not name a person."""

    model_config = ConfigDict(extra="forbid")
    reason: Text = Field(min_length=1, max_length=1000, examples=["started by mistake"])
