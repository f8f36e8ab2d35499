"""Frozen plain data into the pipeline and out of it: a spec says everything that decides the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.jobs.params import Architecture, BadNets, MethodParameters, TrainingRecipe
from models_store.rows import RowSet

NO_ROWS = RowSet(b"")


@dataclass(frozen=True, kw_only=True)
class Poison:
    """Rows that are read with a trigger and another label than they have, and what these are."""

    parameters: BadNets
    rows: RowSet


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Where a data set version's rows are and how to read them."""

    reader: str  # "sklearn_digits", "npz" or "parquet"
    location: str  # a path inside the operator's data roots; empty for sklearn_digits
    options: Mapping[str, Any] = field(default_factory=dict)
    num_classes: int
    image_shape: tuple[int, int, int]  # height, width, channels
    manifest: str | None = None  # blob of the images' hashes; None: registered before they were kept
    poison: Poison | None = None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What besides the spec decides the bits of the weights; recorded with every outcome.

    `rows_in_memory_bytes` decides none of them, only where rows are kept.
    """

    threads: int
    device: str  # "cpu", "cuda", "cuda:1"
    rows_in_memory_bytes: int = 2 * 1024**3  # pixels of one set of rows; larger sets are read batch by batch


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """Train from scratch on `train`; a reference's is the retain set, a shadow's a random share of rows."""

    data: DataSpec
    architecture: Architecture
    recipe: TrainingRecipe
    train: RowSet
    validation: RowSet
    test: RowSet
    seed: int
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class Version:
    """A trained network: its weights' digest in the store, and how it came to be."""

    architecture: Architecture
    weights: str


@dataclass(frozen=True, kw_only=True)
class ValidateSpec:
    """Check uploaded weights against their architecture, and measure the network."""

    data: DataSpec
    uploaded: Version
    train: RowSet
    validation: RowSet
    test: RowSet
    seed: int
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class Unlearned:
    """The method's result, before the audit.

    `course` is what the method found out about itself: {"steps", "curve"} and, where it judged itself,
    {"target", "readings", "kept_step", "rebound"}. `blobs` holds its mask, if it had one.
    """

    weights: str
    seconds: float
    passes: int
    course: Mapping[str, Any] = field(default_factory=dict)
    blobs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """How confident a network was of its training rows while it learned them."""

    blob: str  # that `workers.training.confidence.scores` reads
    rows: RowSet  # those it tells of


@dataclass(frozen=True, kw_only=True)
class Taught:
    """The training that a version's weights come from."""

    rows: RowSet  # all that it was trained on
    seed: int
    device_type: str  # of what kind of device
    snapshots: tuple[str, ...] = ()  # weights at the beginning of each epoch, if they were kept


@dataclass(frozen=True, kw_only=True)
class ShadowSpec:
    """A network that was trained, by the original's recipe, on a random share of rows."""

    weights: str
    rows: RowSet  # among them maybe rows to forget and held-out ones


@dataclass(frozen=True, kw_only=True)
class UnlearnSpec:
    """Remove `forget` from `original` by `method`, then audit the result."""

    data: DataSpec
    original: Version
    recipe: TrainingRecipe
    method: str
    parameters: MethodParameters
    forget: RowSet
    retain: RowSet
    holdout: RowSet  # never trained on; the attack's non-members
    holdout_match: Literal["subject", "class"]  # same people's other rows, or same classes' other rows
    class_distance: float = 0.1  # how far class shares of holdout and forget rows may differ: the policy's
    test: RowSet
    validation: RowSet = NO_ROWS  # never trained on, not audited with: the method judges itself by them
    kin: RowSet = NO_ROWS  # those of them that are of the same people as `forget`
    learned: Learned | None = None  # of the original, or of the network that it came from
    taught: Taught | None = None  # None: it was not trained here
    seed: int
    references: tuple[str, ...] = ()  # weights digests of networks trained on exactly `retain`
    reference_seconds: float | None = None  # that the first of them took
    shadows: tuple[ShadowSpec, ...] = ()
    done: Unlearned | None = None  # this job's own earlier result: only the audit is left
    environment: Environment

    @property
    def reference(self) -> str | None:
        """The first of the references, which may be published; None without one."""
        return self.references[0] if self.references else None


@dataclass(frozen=True, kw_only=True)
class ReadinessSpec:
    """Measure how hard deletions from `version` will be."""

    data: DataSpec
    version: Version
    recipe: TrainingRecipe | None  # None: nobody said how it was trained
    rows: RowSet  # what it was trained on, less what has been deleted
    validation: RowSet
    learned: Learned | None = None
    taught: Taught | None = None  # None: it was not trained here
    seed: int
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class TrainOutcome:
    weights: str
    figures: Mapping[str, Any]  # accuracy by set, loss curve, seconds, passes, memorisation, environment
    blobs: Mapping[str, str] = field(default_factory=dict)  # name to digest; of the training rows


@dataclass(frozen=True, kw_only=True)
class ShadowOutcome:
    weights: str
    correct: RowSet  # those of the judged rows that are classified as labelled
    figures: Mapping[str, Any]  # accuracy on the rows inside and outside, seconds, passes, environment


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong with an upload, and with what of it: "weights", "architecture" or "rows"."""

    at: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Validated:
    """Either faults, or figures: accuracy by set, parameters, normalisation, environment."""

    faults: tuple[Fault, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AuditOutcome:
    figures: Mapping[str, Any]  # the layout is described in workers/audit/figures.py and docs/audit.md
    blobs: Mapping[str, str]  # name (such as "margins.svg") to digest
