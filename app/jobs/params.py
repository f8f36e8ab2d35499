"""Typed parameters of every reader, network, objective and unlearning method, with their costs and sources.

Frozen standard-library dataclasses: pydantic's TypeAdapter validates them (all faults at once) and turns them
into JSON schema for the API, and the workers take them as they are. This is the one app module that
workers.data, workers.methods and workers.training import, so it imports nothing of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from app.text import Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=10)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
BatchSize = Annotated[int, Field(ge=1, le=65_536)]
StepBudget = Annotated[int, Field(ge=1, le=1_000_000)]
Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["auto", "fp32", "bf16"]
Split = Literal["train", "validation", "holdout", "test"]
ColumnName = Annotated[Text, Field(min_length=1, max_length=200)]
ClassNames = Annotated[
    tuple[Annotated[Text, Field(min_length=1, max_length=200)], ...], Field(max_length=10_000)
]

_STRICT = ConfigDict(extra="forbid")


def _stays_inside(path: str) -> str:
    """A relative path without `..`: joined to a folder, it names something in that folder."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path or "\0" in path:
        raise ValueError("must be a path relative to the location, without '..'")
    return path


@dataclass(frozen=True, kw_only=True)
class SklearnDigits:
    """The 1,797 handwritten 8x8 digits that come with scikit-learn (Alpaydin & Kaynak 1998).

    The images and labels are real; the data set names no people, so its rows are dealt out to 60 invented
    subjects, `contributor-00` to `contributor-59`. The first `mislabelled_subjects` of them handed in wrong
    labels: a mistaken contribution, which a network can only memorise. Half of their rows are kept out of
    training, so that an audit has never-trained rows of the same people. `seed` decides who gets which row.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    mislabelled_subjects: Annotated[int, Field(ge=0, le=20)] = 7
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


@dataclass(frozen=True, kw_only=True)
class Npz:
    """One .npz file: arrays `x` (uint8 [N, H, W] or [N, H, W, C]), `y`, optional `ids`, `subjects`, `split`.

    Without `ids` a row's position is its sample ID. Without `class_names` there are max(label) + 1 classes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    class_names: ClassNames = ()


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """One file of a data set: its path inside the location, its rows' split, how many of them to take."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    path: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_stays_inside)]
    split: Split | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, kw_only=True)
class Parquet:
    """Parquet files in the Hugging Face image layout: an image column of struct{bytes, path} or of bytes.

    The location is one file or a folder, whose *.parquet files are read in the order of their names unless
    `files` lists them. A split of `files` holds for all rows of that file; `split_column` is read elsewhere.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    id_column: ColumnName = "sample_id"
    image_column: ColumnName = "image"
    label_column: ColumnName = "label"
    subject_column: ColumnName | None = None
    split_column: ColumnName | None = None
    files: Annotated[tuple[ParquetFile, ...], Field(max_length=10_000)] = ()
    class_names: ClassNames = ()


ReaderOptions = SklearnDigits | Npz | Parquet


@dataclass(frozen=True, kw_only=True)
class ReaderInfo:
    """What a caller may know of a reader before registering a data set with it."""

    options: type[ReaderOptions]
    summary: str
    needs_location: bool


READERS: Mapping[str, ReaderInfo] = {
    "sklearn_digits": ReaderInfo(
        options=SklearnDigits,
        summary="Scikit-learn's handwritten digits, with invented subjects; needs no file.",
        needs_location=False,
    ),
    "npz": ReaderInfo(
        options=Npz,
        summary="One NumPy .npz file of uint8 images and integer labels.",
        needs_location=True,
    ),
    "parquet": ReaderInfo(
        options=Parquet,
        summary="Parquet files of encoded images, as Hugging Face data sets store them.",
        needs_location=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class RoleShares:
    """What part of the rows without a split is kept out of training, by role; the rest trains.

    `test` counts only where the data set brings no test rows of its own.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    holdout: Annotated[float, Field(ge=0, le=0.3)] = 0.1
    validation: Annotated[float, Field(ge=0, le=0.3)] = 0.05
    test: Annotated[float, Field(ge=0, le=0.3)] = 0.2


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A network from the allow-list; input and class counts come from the data set.

    `resnet8`, `resnet14` and `resnet20` are CIFAR-stem residual networks (3x3 stem, no max-pool).
    `width` multiplies every layer's channel count (resnet: base 16, small_cnn: base 16).
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: Literal["small_cnn", "resnet8", "resnet14", "resnet20"] = "small_cnn"
    width: Annotated[float, Field(gt=0, le=16)] = 1.0


@dataclass(frozen=True, kw_only=True)
class Plain:
    """Plain cross-entropy. One forward/backward pass a step."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: Literal["plain"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Sam:
    """Sharpness-aware minimisation (Foret et al. 2021). Two forward/backward passes a step."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: Literal["sam"]
    rho: NonNegative = 0.05


@dataclass(frozen=True, kw_only=True)
class Asam:
    """Adaptive sharpness-aware minimisation (Kwon et al. 2021). Two forward/backward passes a step."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: Literal["asam"]
    rho: NonNegative = 0.5


Objective = Annotated[Plain | Sam | Asam, Field(discriminator="name")]


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """How a network is trained from scratch; kept with every version, so that retraining is possible."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 40
    batch_size: BatchSize = 64
    learning_rate: Rate = 0.05
    warmup_share: Share = 0.15
    schedule: Schedule = "linear"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = True
    weight_decay: NonNegative = 5e-4
    augmentation: Literal["none", "flip", "flip_crop"] = "none"
    precision: Precision = "auto"
    objective: Objective = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class Iterative:
    """What every step-based method shares."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    steps: StepBudget = 100
    learning_rate: Rate = 0.01
    schedule: Schedule = "linear"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 5e-4
    retain_batch_size: BatchSize = 64
    precision: Precision = "auto"


@dataclass(frozen=True, kw_only=True)
class Retrain:
    """No parameters: the version's own recipe, from a fresh initialisation, on the remaining rows."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, kw_only=True)
class Finetune(Iterative):
    """Go on training on the remaining rows alone."""

    steps: StepBudget = 280
    learning_rate: Rate = 0.1
    objective: Objective = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class NegGrad(Iterative):
    """alpha * CE(retain) - (1 - alpha) * CE(forget) in one step."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.8
    forget_batch_size: BatchSize = 64
    objective: Objective = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class SharpMinMax(Iterative):
    """Two disjoint halves of the parameters: one keeps (sharpness minimised), one forgets (maximised).

    `mask_fraction` p: the share of parameters, by |sum of forget gradients|, that forgets. `mask_end` says
    which end of that order: `top` is the paper's words, `bottom` is what its released code did.
    `perturb`: whether each half's ascent step moves its `own` coordinates or `all` of them.
    `sharpness_weight` lambda: update = g +- lambda * (g_perturbed - g).
    """

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.8
    rho: NonNegative = 0.5
    adaptive: bool = True
    sharpness_weight: NonNegative = 1.0
    mask_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    mask_end: Literal["top", "bottom"] = "top"
    perturb: Literal["own", "all"] = "own"
    forget_batch_size: BatchSize = 16
    freeze_statistics: bool = False


MethodParameters = Retrain | Finetune | NegGrad | SharpMinMax


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """What a caller may know of a method before choosing it; costs are counted, not timed."""

    parameters: type[MethodParameters]
    summary: str
    passes_per_step: int | None  # forward/backward passes; None: those of the recipe
    parameter_copies: int  # besides the weights themselves and their gradient
    exact: bool
    source: str


METHODS: Mapping[str, MethodInfo] = {
    "retrain": MethodInfo(
        parameters=Retrain,
        summary="Train again from scratch on the remaining rows: exact, and the last rung of every ladder.",
        passes_per_step=None,
        parameter_copies=1,
        exact=True,
        source="Definition of exact unlearning",
    ),
    "finetune": MethodInfo(
        parameters=Finetune,
        summary="Keep training on the remaining rows and let the rest fade; a weak baseline.",
        passes_per_step=1,
        parameter_copies=1,
        exact=False,
        source="Golatkar et al. 2020, Eternal Sunshine of the Spotless Net",
    ),
    "neggrad": MethodInfo(
        parameters=NegGrad,
        summary="Descend on the remaining rows and ascend on the deleted ones in the same step (NegGrad+).",
        passes_per_step=2,
        parameter_copies=1,
        exact=False,
        source="Kurmanji et al. 2023, Towards Unbounded Machine Unlearning, section 3",
    ),
    "sharp_minmax": MethodInfo(
        parameters=SharpMinMax,
        summary=(
            "Split the parameters by the size of their forget gradient: sharpness-aware minimisation on the "
            "part that keeps, sharpness maximisation on the part that forgets."
        ),
        passes_per_step=4,
        parameter_copies=4,
        exact=False,
        source="Tang & Khanna 2026, arXiv 2506.13715, section 4",
    ),
}

ARCHITECTURE: TypeAdapter[Architecture] = TypeAdapter(Architecture)
RECIPE: TypeAdapter[TrainingRecipe] = TypeAdapter(TrainingRecipe)
_PARAMETERS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(info.parameters) for name, info in METHODS.items()
}
ROLE_SHARES: TypeAdapter[RoleShares] = TypeAdapter(RoleShares)
_OPTIONS: Mapping[str, TypeAdapter[Any]] = {name: TypeAdapter(info.options) for name, info in READERS.items()}


def method_parameters(name: str, given: Mapping[str, Any]) -> MethodParameters:
    """The parameters of method `name`, defaults filled in.

    Raises:
        KeyError: there is no such method.
        pydantic.ValidationError: naming every fault in `given`.
    """
    parameters: MethodParameters = _PARAMETERS[name].validate_python(dict(given), strict=False)
    return parameters


def method_schema(name: str) -> dict[str, Any]:
    """JSON schema of the parameters of method `name`."""
    return _PARAMETERS[name].json_schema()


def reader_options(name: str, given: Mapping[str, Any]) -> ReaderOptions:
    """The options of reader `name`, defaults filled in.

    Raises:
        KeyError: there is no such reader.
        pydantic.ValidationError: naming every fault in `given`.
    """
    options: ReaderOptions = _OPTIONS[name].validate_python(dict(given), strict=False)
    return options


def reader_schema(name: str) -> dict[str, Any]:
    """JSON schema of the options of reader `name`."""
    return _OPTIONS[name].json_schema()


def plain_data(parameters: DataclassInstance) -> dict[str, Any]:
    """Any parameter object of this module as JSON-ready data, every default spelled out."""
    return asdict(parameters)
