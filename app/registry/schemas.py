"""How the API takes and shows models."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.datasets.schemas import Name
from app.jobs.params import Architecture, BuiltIn, TrainingRecipe
from app.jobs.policies import Policy
from app.tables import VersionState
from app.text import Text

VersionNumber = Annotated[int, Field(ge=1, lt=2**31, examples=[2])]


class NewModel(BaseModel):
    """A name for a network, and the policy for deletions from it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "digit-reader"}]})
    name: Name
    description: Text = Field(default="", max_length=2000)
    policy: Policy = Field(default_factory=Policy)


class Training(BaseModel):
    """What to train, on what, and how."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "dataset": "digits",
                    "architecture": {"name": "small_cnn"},
                    "recipe": {"epochs": 40, "batch_size": 64, "learning_rate": 0.05},
                    "alias": "production",
                }
            ]
        },
    )
    dataset: Name
    dataset_version: VersionNumber | None = Field(
        default=None, description="The newest ready one if left out."
    )
    architecture: Architecture = Field(default_factory=BuiltIn)
    recipe: TrainingRecipe = Field(default_factory=TrainingRecipe)
    alias: Name | None = Field(default="production", description="Moved to the new version; null: none.")
    seed: int = Field(default=0, ge=0, lt=2**63)


class PolicyView(BaseModel):
    """One version of a model's policy."""

    model_config = ConfigDict(from_attributes=True)
    id: uuid.UUID
    number: int
    body: Policy
    created_at: datetime
    created_by: str


class VersionView(BaseModel):
    """One version of a model."""

    model_config = ConfigDict(from_attributes=True)
    id: uuid.UUID
    number: int
    state: VersionState
    origin: str = Field(examples=["unlearned"])
    parent_id: uuid.UUID | None
    job_id: uuid.UUID | None
    dataset_version_id: uuid.UUID
    rows: int = Field(description="How many rows it was trained on, less those removed since.")
    rows_digest: str
    architecture: dict[str, Any]
    recipe: dict[str, Any] | None
    weights: str | None = Field(description="SHA-256 of the weights file.")
    figures: dict[str, Any]
    aliases: list[str]
    created_at: datetime


class ModelView(BaseModel):
    """A model, what its aliases name, and its policy in force."""

    id: uuid.UUID
    name: str
    description: str
    aliases: dict[str, int] = Field(examples=[{"production": 2}])
    policy: PolicyView
    created_at: datetime


class AliasMove(BaseModel):
    """Which version an alias should name."""

    model_config = ConfigDict(extra="forbid")
    version: VersionNumber
    reason: Text = Field(min_length=1, max_length=1000, examples=["roll back: complaints since Tuesday"])


class Started(BaseModel):
    """The job that was queued."""

    job_id: uuid.UUID
