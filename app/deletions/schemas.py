"""How the API takes and shows deletion requests."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from app.datasets.schemas import Name
from app.jobs.budget import AuditBudget
from app.tables import ItemResult, JobState, RequestState, TargetState
from app.text import Text

Regulation = Annotated[str, Field(pattern=r"^[a-z]{2,20}$")]
DueAt = Annotated[AwareDatetime | None, Field(description="The policy's term if left out.")]
SampleId = Annotated[Text, Field(min_length=1, max_length=1000)]


class NewItem(BaseModel):
    """One sample by its ID, or every sample about one subject."""

    model_config = ConfigDict(extra="forbid")
    dataset: Name | None = Field(default=None, description="The request's data set if left out.")
    sample_id: SampleId | None = Field(default=None, examples=["digits-0042"])
    subject: SampleId | None = Field(default=None, examples=["contributor-03"])

    @model_validator(mode="after")
    def _names_one_thing(self) -> NewItem:
        if (self.sample_id is None) == (self.subject is None):
            raise ValueError("an item names either a sample_id or a subject")
        return self


class NewRequest(BaseModel):
    """What is to be forgotten."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "dataset": "digits",
                    "items": [{"subject": "contributor-03"}, {"sample_id": "digits-0042"}],
                    "external_id": "ticket-2026-117",
                }
            ]
        },
    )
    dataset: Name | None = Field(default=None, description="Where items that name no data set belong.")
    items: list[NewItem] = Field(min_length=1, max_length=1_000_000)
    external_id: Text | None = Field(default=None, min_length=1, max_length=200, description="Yours; unique.")
    regulation: Regulation = "gdpr"
    due_at: DueAt = None
    audit_budget: AuditBudget = 0


class UploadTerms(BaseModel):
    """What a caller asks for besides the samples, which are in the body."""

    model_config = ConfigDict(extra="forbid")
    dataset: Name | None = Field(default=None, description="Where items that name no data set belong.")
    regulation: Regulation = "gdpr"
    due_at: DueAt = None
    audit_budget: AuditBudget = 0


class Filter(BaseModel):
    """Which requests are wanted: those for which all that is given holds."""

    state: list[RequestState] = Field(default_factory=list, max_length=20, description="One of these.")
    received_after: AwareDatetime | None = None
    received_before: AwareDatetime | None = None
    due_before: AwareDatetime | None = None
    overdue: bool = Field(default=False, description="Only those whose due date has passed unfinished.")
    model: Name | None = Field(default=None, description="It has to forget something for them.")
    dataset: Name | None = Field(default=None, description="They cover rows of it.")


class NewRequests(BaseModel):
    """Several requests, all of which are accepted, or none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "requests": [
                        {"dataset": "digits", "items": [{"subject": "contributor-03"}]},
                        {"dataset": "digits", "items": [{"subject": "contributor-04"}]},
                    ]
                }
            ]
        },
    )
    requests: list[NewRequest] = Field(min_length=1, max_length=100)


class ModelPreview(BaseModel):
    """What a request would mean for one model."""

    model: str
    versions: list[int] = Field(description="Versions in use that were trained on some of the rows.")
    rows_to_forget: int
    rows: int = Field(description="Of how many rows, in the version in use with most of them.")
    ladder: list[RungPreview]
    due_days: int
    audit_budget: int = Field(description="What its audit may spend at most, in trainings of the model.")
    probe: ProbeView | None = Field(
        description="What the newest probe of just these rows found; ask for one by `probe=true`."
    )


class ProbeView(BaseModel):
    """A job that measures what forgetting these rows would take, and what it found."""

    job_id: uuid.UUID
    state: JobState
    guidance: dict[str, Any] | None = Field(
        description=(
            "Gradients of both sets of rows, short trials of several alphas and mask fractions, what is"
            " recommended, and the reasons."
        )
    )


class RungPreview(BaseModel):
    """One method that would be tried, and what it took before."""

    method: str
    exact: bool
    seconds: float | None = Field(description="Median of earlier jobs of this model; null: there were none.")
    jobs: int = Field(description="How many earlier jobs that is taken from.")


class TwinsPreview(BaseModel):
    """Rows that are, byte for byte, like rows to be forgotten, and would stay."""

    dataset: str
    version: int
    count: int
    sample_ids: list[str] = Field(description="The first thousand; add them if they should go too.")


class Preview(BaseModel):
    """What a request would do. Nothing was done."""

    items: ItemCounts
    unmatched: list[int] = Field(description="The first thousand items that were not found, by position.")
    models: list[ModelPreview]
    twins: list[TwinsPreview]


class ItemCounts(BaseModel):
    """How many items a request names, and how many of them were found."""

    total: int
    matched: int
    no_match: int


class TargetView(BaseModel):
    """What the request means for one model."""

    model_config = ConfigDict(from_attributes=True)
    model_id: uuid.UUID
    state: TargetState
    reason: str | None
    job_id: uuid.UUID | None
    finished_at: datetime | None


class RequestView(BaseModel):
    """A deletion request and where it stands."""

    id: uuid.UUID
    external_id: str | None
    regulation: str
    state: RequestState
    reason: str | None
    audit_budget: int
    items: ItemCounts
    targets: list[TargetView]
    received_at: datetime
    due_at: datetime
    finished_at: datetime | None


class Accepted(BaseModel):
    """The requests that were accepted."""

    requests: list[RequestView]


class ItemView(BaseModel):
    """One item and what was found for it."""

    position: int
    dataset: str | None
    sample_id: str | None
    subject_key: str | None = Field(description="The subject as a keyed hash; the subject is not kept.")
    result: ItemResult
    reason: str | None
    rows: int

    @property
    def ordinal(self) -> int:
        """Its place in the list, counted from 1, as pages want it."""
        return self.position + 1
