"""How the API takes and shows models."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.datasets.schemas import Name, SampleName
from app.jobs.params import Architecture, BuiltIn, Split, TrainingRecipe
from app.jobs.policies import Policy, Rung
from app.tables import JobState, VersionState
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


Tier = Literal["high", "mid", "low"]
Basis = Literal["estimate", "proxy"]


class TierRows(BaseModel):
    """The rows that the version has memorised most, least, or middlingly: as many as a share of all its rows.

    The accuracy on never-trained rows is no target for such rows: a network retrained without them gets far
    fewer (high) or more (low) of them right. What methods aim at instead is guessed from the proxy; how many
    it should be only the reference says.
    """

    model_config = ConfigDict(extra="forbid")
    tier: Tier = Field(examples=["high"])
    share: float = Field(gt=0, lt=1, examples=[0.05])
    by: Basis | None = Field(
        default=None,
        description="Whose scores: those estimated from shadows, or the proxy that was recorded while the"
        " version was trained. The estimate, if there is one, if left out.",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Decides between rows of equal scores.")


class PoisonedRows(BaseModel):
    """The version's rows that were poisoned for an experiment: forgetting them is cleaning the version."""

    model_config = ConfigDict(extra="forbid")
    poisoned: Literal[True]


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
                },
                {
                    "forget": {"tier": "high", "share": 0.05, "by": "proxy"},
                    "methods": [{"method": "neggrad"}],
                },
                {"forget": {"poisoned": True}, "methods": [{"method": "finetune"}]},
            ]
        },
    )
    forget: RowsById | TierRows | RandomRows | PoisonedRows = Field(
        description="Rows that are forgotten for the comparison only."
    )
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


class NewReadiness(BaseModel):
    """How closely a version is looked at."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"rows": 1024}]})
    rows: int = Field(
        default=1024, ge=1, le=1_000_000, description="Training rows that are looked at, at most."
    )
    iterations: int = Field(
        default=50,
        ge=1,
        le=10_000,
        description="Products with the Hessian at most, each about two passes over these rows.",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Decides which rows these are.")


class ReadinessView(BaseModel):
    """The job that measures a version's readiness, and what it found."""

    job_id: uuid.UUID
    state: JobState
    figures: dict[str, Any] | None = Field(
        description=(
            "Accuracy on trained and on unseen rows, norms of the gradient, the Hessian's largest eigenvalue,"
            " the estimated error of first-order unlearning, how many rows were learned late, and in one"
            " sentence how hard unlearning will be."
        )
    )


class NewShadows(BaseModel):
    """How many networks a pool is to have, and on which share of the version's rows each is trained."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"networks": 32, "share": 0.5}]}
    )
    networks: int = Field(default=32, ge=2, le=512)
    share: float = Field(default=0.5, gt=0, lt=1, description="Another share makes another pool.")


class Pool(BaseModel):
    """The networks of one version that were trained on one share of its rows."""

    share: float
    asked: int = Field(description="How many networks it is to have.")
    done: int = Field(description="How many of them can be used.")
    running: int = Field(description="How many jobs are queued or under way.")
    failed: int = Field(description="How many jobs failed or were cancelled; asking again queues them again.")
    discarded: int = Field(
        description="How many networks learned a row that was deleted since; asking again trains others."
    )
    estimating: bool = Field(description="Whether an estimate from the pool is on its way.")


class PoolsExtended(BaseModel):
    """How many jobs were queued, and where the version's pools stand now."""

    queued: int
    pools: list[Pool]


class Estimate(BaseModel):
    """Memorisation as estimated from a pool, in figures; each row's score can be looked up."""

    model_config = ConfigDict(extra="ignore")
    share: float
    networks: int
    rows: int = Field(description="How many rows have a score.")
    standard_error: float | None = Field(description="The largest that the median row's score can have.")
    quantiles: dict[str, float] = Field(examples=[{"0.05": 0.0, "0.5": 0.06, "0.95": 0.44}])
    shares_above: dict[str, float] = Field(
        description="Which share of the rows has a higher score.", examples=[{"0.25": 0.11, "0.5": 0.04}]
    )
    spearman_with_proxy: float | None


class Proxy(BaseModel):
    """The proxy: 1 minus a row's mean confidence, as recorded while a version was trained."""

    version: int = Field(description="Which version's training recorded it.")


class MemorisationView(BaseModel):
    """What is known of how far a version has memorised its rows."""

    proxy: Proxy | None
    estimate: Estimate | None
    pools: list[Pool]


class MemorisationLookup(BaseModel):
    """Samples whose scores are wanted."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"sample_ids": ["digits-0042"]}]}
    )
    sample_ids: list[SampleName] = Field(min_length=1, max_length=10_000)


class SampleScore(BaseModel):
    """How far the version has memorised one sample; null where nothing is known."""

    sample_id: str
    estimate: float | None
    standard_error: float | None = Field(description="The largest that the estimate can have.")
    proxy: float | None


class SampleScores(BaseModel):
    """Scores by sample. What did not train the version, or was deleted since, is named by its position."""

    samples: list[SampleScore]
    unknown_sample_ids: list[int]
