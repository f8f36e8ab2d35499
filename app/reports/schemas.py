"""How the API shows reports and certificates."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.deletions.schemas import ItemView, RequestView
from app.jobs.policies import Rung
from app.tables import JobState
from app.text import Text


class ReportSummary(BaseModel):
    """A report, without its figures."""

    model_config = ConfigDict(from_attributes=True)
    id: uuid.UUID
    job_id: uuid.UUID
    model_id: uuid.UUID
    version_before_id: uuid.UUID
    version_after_id: uuid.UUID | None
    verdict: str = Field(examples=["inconclusive"])
    published: bool
    created_at: datetime


class ReportView(ReportSummary):
    """A report: what was done, every figure with its interval, the verdict and what followed."""

    body: dict[str, Any]


class AttestationView(BaseModel):
    """The signed envelope of a report (DSSE around an in-toto Statement) and the key it verifies with."""

    model_config = ConfigDict(from_attributes=True)
    envelope: dict[str, Any]
    key_id: str
    public_key: str = Field(description="Ed25519, PEM.")


class Certificate(BaseModel):
    """What one request gets: its items, what was done for each model, and the reports on it."""

    request: RequestView
    items: list[ItemView]
    reports: list[ReportSummary]
    statement: str


class Approval(BaseModel):
    """A named person's decision on a job that awaits one."""

    model_config = ConfigDict(extra="forbid")
    reason: Text = Field(min_length=1, max_length=1000, examples=["figures checked against the audit policy"])


class ComparisonView(BaseModel):
    """What a comparison has come to so far: a row a run, and means with 95% intervals over the seeds."""

    job_id: uuid.UUID
    state: JobState
    reason: str | None
    model: str
    version: int
    methods: list[Rung]
    seeds: int
    rows: list[dict[str, Any]]
    table: list[dict[str, Any]]
