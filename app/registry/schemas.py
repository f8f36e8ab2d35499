"""How the API takes and shows models."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.datasets.schemas import Name, SampleName
from app.jobs.params import Architecture, BuiltIn, Split, TrainingRecipe
from app.jobs.policies import Policy, Rung
from app.tables import VersionState
from app.text import Text

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
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


class RowsByRole(BaseModel):
    """The rows that have a role in the data set."""

    model_config = ConfigDict(extra="forbid")
    split: Split = Field(examples=["train"])


class RowsById(BaseModel):
    """The rows of these samples."""

    model_config = ConfigDict(extra="forbid")
    sample_ids: list[SampleName] = Field(min_length=1, max_length=1_000_000, examples=[["digits-0042"]])


class RowsByFile(BaseModel):
    """The rows of the samples that a text file names, one ID a line."""

    model_config = ConfigDict(extra="forbid")
    file: str = Field(min_length=1, max_length=4096, description="A path inside EXPUNGE_DATA_ROOTS.")


class VersionUpload(BaseModel):
    """Weights that were trained elsewhere, and everything a deletion from them needs to know."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "weights": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "architecture": {
                        "family": "torchvision",
                        "name": "resnet18",
                        "normalisation": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
                    },
                    "dataset": "digits",
                    "rows": {"split": "train"},
                    "recipe": {"epochs": 40, "learning_rate": 0.05},
                    "alias": "production",
                }
            ]
        },
    )
    weights: Digest = Field(description="SHA-256 of a file that was uploaded to /v1/weights.")
    architecture: Architecture
    dataset: Name
    dataset_version: VersionNumber | None = Field(
        default=None, description="The newest ready one if left out."
    )
    rows: RowsByRole | RowsById | RowsByFile = Field(
        default=RowsByRole(split="train"), description="The rows it was trained on."
    )
    recipe: TrainingRecipe | None = Field(
        default=None, description="How it was trained. Without it nothing can be retrained: see the notes."
    )
    alias: Name | None = Field(default="production", description="Moved to the new version; null: none.")


class RandomRows(BaseModel):
    """A random share of the version's rows."""

    model_config = ConfigDict(extra="forbid")
    share: float = Field(gt=0, lt=1, examples=[0.05])
    seed: int = Field(default=0, ge=0, lt=2**63)


class NewComparison(BaseModel):
    """Methods to be run on the same version and rows, and judged by the same retrained network."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "forget": {"share": 0.05},
                    "methods": [
                        {"method": "neggrad"},
                        {"method": "sharp_minmax", "parameters": {"alpha": 0.9}},
                    ],
                    "seeds": 3,
                }
            ]
        },
    )
    forget: RowsById | RandomRows = Field(description="Rows that are forgotten for the comparison only.")
    methods: list[Rung] = Field(min_length=1, max_length=50)
    seeds: int = Field(default=3, ge=1, le=100, description="Runs of each method.")
    seed: int = Field(default=0, ge=0, lt=2**62, description="The runs' seeds follow from it.")


class Registered(BaseModel):
    """An upload that was registered: the version, the job that validates it, and what to bear in mind."""

    model: str
    version: int
    job_id: uuid.UUID
    notes: list[str]


class Uploaded(BaseModel):
    """A weights file in the store."""

    weights: str = Field(description="Its SHA-256.")
    bytes: int
    tensors: int


class Ancestor(BaseModel):
    """One step of a version's history."""

    number: int
    origin: str
    state: VersionState
    rows: int | None
    method: str | None = Field(description="The unlearning method, if it came of one.")
    job_id: uuid.UUID | None
    created_at: datetime


class Lineage(BaseModel):
    """Where a version came from, itself first, and what came of it."""

    ancestors: list[Ancestor]
    descendants: list[Ancestor]


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
    reason: str | None
    origin: str = Field(examples=["unlearned"])
    parent_id: uuid.UUID | None
    job_id: uuid.UUID | None
    dataset_version_id: uuid.UUID
    rows: int | None = Field(description="How many rows it was trained on, less those removed since.")
    rows_digest: str | None
    quarantined: int = Field(
        description="How many of its rows have been deleted since: with any, no alias may be moved to it."
    )
    architecture: dict[str, Any]
    recipe: dict[str, Any] | None
    weights: str | None = Field(description="SHA-256 of the weights file.")
    figures: dict[str, Any]
    faults: list[Any] | None = Field(description="What validation found wrong.")
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
    retired_at: datetime | None


class AliasMove(BaseModel):
    """Which version an alias should name."""

    model_config = ConfigDict(extra="forbid")
    version: VersionNumber
    reason: Text = Field(min_length=1, max_length=1000, examples=["roll back: complaints since Tuesday"])


class Started(BaseModel):
    """The job that was queued."""

    job_id: uuid.UUID
