"""How the API takes and shows data sets."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.jobs.params import BadNets, RoleShares
from app.tables import DatasetState
from app.text import Text

SampleName = Annotated[Text, Field(min_length=1, max_length=1000)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", examples=["digits"])]


class NewDataset(BaseModel):
    """A data set to register, or a changed one to register again under its name."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "digits", "reader": "sklearn_digits", "options": {"mislabelled_subjects": 7}},
                {
                    "name": "digits-with-a-backdoor",
                    "reader": "sklearn_digits",
                    "options": {"mislabelled_subjects": 0},
                    "poison": {"name": "badnets", "trigger": "square", "rate": 0.05, "target": 0},
                },
            ]
        },
    )
    name: Name
    reader: str = Field(max_length=50, description="One of /v1/readers.")
    location: str = Field(
        default="",
        max_length=4096,
        description="A path inside EXPUNGE_DATA_ROOTS, or a URL below EXPUNGE_DATA_URLS.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The reader's own options.")
    shares: RoleShares = Field(default_factory=RoleShares)
    seed: int = Field(default=0, ge=0, lt=2**63, description="Decides which rows are kept out of training.")
    poison: BadNets | None = Field(
        default=None,
        description="For experiments only: a share of the training rows teaches a backdoor.",
    )


class PoisonView(BaseModel):
    """How a data set version is poisoned, for an experiment."""

    parameters: BadNets
    count: int | None = Field(
        default=None, description="How many rows are poisoned; null until they were drawn."
    )


class DatasetView(BaseModel):
    """One version of a data set."""

    model_config = ConfigDict(from_attributes=True)
    id: uuid.UUID
    name: str
    version: int
    state: DatasetState
    reason: str | None
    reader: str
    options: dict[str, Any]
    shares: dict[str, Any]
    seed: int
    row_count: int | None
    num_classes: int | None
    class_names: list[str] | None
    image_shape: list[int] | None
    role_counts: dict[str, int] | None
    poison: PoisonView | None
    faults: list[Any] | None
    created_at: datetime
    ready_at: datetime | None


class Lookup(BaseModel):
    """Samples and people to be looked up."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"sample_ids": ["digits-0042"], "subjects": ["contributor-03"]}]},
    )
    sample_ids: list[SampleName] = Field(default_factory=list, max_length=10_000)
    subjects: list[SampleName] = Field(default_factory=list, max_length=1_000)
    dataset_version: int | None = Field(
        default=None, ge=1, lt=2**31, description="Only this version; all in force if left out."
    )


class SampleView(BaseModel):
    """A sample, in one version of its data set."""

    sample_id: str
    dataset_version: int
    ordinal: int = Field(description="Its row, counted from 0.")
    label: int
    role: str = Field(examples=["train"])
    deleted: bool = Field(description="Whether a deletion request that stands bars it from training.")
    content_hash: str = Field(description="SHA-256 of its content, in hexadecimal.")


class PoisonedSample(BaseModel):
    """A sample that is poisoned for an experiment."""

    position: int = Field(description="Among the poisoned samples, counted from 0.")
    sample_id: str
    dataset_version: int
    row: int = Field(description="Its row, counted from 0.")

    @property
    def ordinal(self) -> int:
        """Its place in the list, counted from 1, as pages want it."""
        return self.position + 1


class LookupResult(BaseModel):
    """What was found. What was not is named by its position in the lookup's lists."""

    samples: list[SampleView]
    more: int = Field(description="How many rows were found besides those listed.")
    unknown_sample_ids: list[int]
    unknown_subjects: list[int]


class Registration(BaseModel):
    """A registration that was accepted: the data set version, and the job that reads it."""

    dataset: DatasetView
    job_id: uuid.UUID
