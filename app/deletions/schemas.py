"""How the API takes and shows deletion requests."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from app.datasets.schemas import Name
from app.tables import ItemResult, RequestState, TargetState
from app.text import Text

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
    regulation: str = Field(default="gdpr", pattern=r"^[a-z]{2,20}$")
    due_at: AwareDatetime | None = Field(default=None, description="The policy's term if left out.")
    reference: bool = Field(
        default=False, description="Also retrain on the remaining rows, to have a network to compare with."
    )


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
    reference: bool
    items: ItemCounts
    targets: list[TargetView]
    received_at: datetime
    due_at: datetime
    finished_at: datetime | None


class ItemView(BaseModel):
    """One item and what was found for it."""

    position: int
    dataset: str | None
    sample_id: str | None
    subject_key: str | None = Field(description="The subject as a keyed hash; the subject is not kept.")
    result: ItemResult
    reason: str | None
    rows: int
