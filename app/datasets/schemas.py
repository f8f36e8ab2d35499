"""How the API takes and shows data sets."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.jobs.params import RoleShares
from app.tables import DatasetState

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", examples=["digits"])]


class NewDataset(BaseModel):
    """A data set to register, or a changed one to register again under its name."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "digits", "reader": "sklearn_digits", "options": {"mislabelled_subjects": 7}}
            ]
        },
    )
    name: Name
    reader: str = Field(max_length=50, description="`sklearn_digits`, `npz` or `parquet`.")
    location: str = Field(default="", max_length=4096, description="A path inside EXPUNGE_DATA_ROOTS.")
    options: dict[str, Any] = Field(default_factory=dict, description="The reader's own options.")
    shares: RoleShares = Field(default_factory=RoleShares)
    seed: int = Field(default=0, ge=0, lt=2**63, description="Decides which rows are kept out of training.")


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
    faults: list[Any] | None
    created_at: datetime
    ready_at: datetime | None


class Registration(BaseModel):
    """A registration that was accepted: the data set version, and the job that reads it."""

    dataset: DatasetView
    job_id: uuid.UUID
