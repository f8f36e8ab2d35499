"""Unlearning methods, by name, with their parameters, costs and sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from app.jobs.params.training import Objective, Plain
from app.jobs.params.types import STRICT, BatchSize, NonNegative, Precision, Rate, Schedule, StepBudget


@dataclass(frozen=True, kw_only=True)
class Iterative:
    """What every step-based method shares."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
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

    __pydantic_config__: ClassVar[ConfigDict] = STRICT


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

_PARAMETERS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(info.parameters) for name, info in METHODS.items()
}


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
