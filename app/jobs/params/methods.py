"""Unlearning methods, by name, with their parameters, costs and sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from app.jobs.params.unlearning import (
    Finetune,
    FisherForgetting,
    GradientAscent,
    GradientReversal,
    Influence,
    L1Sparse,
    MethodParameters,
    NegGrad,
    RandomLabel,
    Retrain,
    SalUn,
    Scrub,
    SharpMinMax,
)


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """What a caller may know of a method before choosing it; costs are counted, not timed."""

    parameters: type[MethodParameters]
    summary: str
    use: str  # when to choose it
    passes_per_step: int | None  # forward/backward passes with a plain objective; None: it takes no steps
    passes: str  # all of them, in words
    parameter_copies: int  # besides the weights themselves and their gradient, at the defaults
    exact: bool = False
    source: str


METHODS: Mapping[str, MethodInfo] = {
    "retrain": MethodInfo(
        parameters=Retrain,
        summary="Train again from scratch on the remaining rows: exact, and the last rung of every ladder.",
        use="Whenever it is affordable, and always as the last rung.",
        passes_per_step=None,
        passes="those of the recipe",
        parameter_copies=1,
        exact=True,
        source="Definition of exact unlearning",
    ),
    "finetune": MethodInfo(
        parameters=Finetune,
        summary="Keep training on the remaining rows and let the rest fade.",
        use="As a baseline; what F and R have in common stays.",
        passes_per_step=1,
        passes="1 a step",
        parameter_copies=2,
        source="Golatkar et al. 2020, Eternal Sunshine of the Spotless Net",
    ),
    "gradient_ascent": MethodInfo(
        parameters=GradientAscent,
        summary="Ascend on the deleted rows alone, with the statistics of normalisation frozen.",
        use="When no remaining row may be read; it damages what it does not see.",
        passes_per_step=1,
        passes="1 a step",
        parameter_copies=2,
        source="Thudi et al. 2022, Unrolling SGD, section 5",
    ),
    "neggrad": MethodInfo(
        parameters=NegGrad,
        summary="Descend on the remaining rows and ascend on the deleted ones in the same step (NegGrad+).",
        use="First: it goes no further than an unseen row would, at the least cost that was measured.",
        passes_per_step=2,
        passes="2 a step",
        parameter_copies=2,
        source="Kurmanji et al. 2023, Towards Unbounded Machine Unlearning, section 3",
    ),
    "random_label": MethodInfo(
        parameters=RandomLabel,
        summary="Learn labels drawn at random for the deleted rows, and the remaining rows as they are.",
        use="As a baseline for SalUn; it leaves deleted rows more uncertain than unseen ones.",
        passes_per_step=2,
        passes="2 a step",
        parameter_copies=2,
        source="Golatkar et al. 2020, Eternal Sunshine of the Spotless Net",
    ),
    "salun": MethodInfo(
        parameters=SalUn,
        summary="Random labels, learned only by the weights that the deleted rows pull at most.",
        use="Where most weights should stay as they are, and one pass over F is affordable.",
        passes_per_step=2,
        passes="2 a step, and one pass over F",
        parameter_copies=3,
        source="Fan et al. 2024, SalUn, section 4",
    ),
    "l1_sparse": MethodInfo(
        parameters=L1Sparse,
        summary="Keep training on the remaining rows under an l1 penalty that falls to zero.",
        use="Where a sparser network is welcome; it forgets a little more than fine-tuning.",
        passes_per_step=1,
        passes="1 a step",
        parameter_copies=2,
        source="Jia et al. 2023, Model Sparsity Can Simplify Machine Unlearning, section 4",
    ),
    "scrub": MethodInfo(
        parameters=Scrub,
        summary="By turns: leave the original's outputs on the deleted rows, stay with them on the others.",
        use="Where outputs on R should change little; `keep` set to `nearest` is its rewind.",
        passes_per_step=2,
        passes="1 and a forward pass of the original, a step; ascents come on top",
        parameter_copies=3,
        source="Kurmanji et al. 2023, Towards Unbounded Machine Unlearning, section 3",
    ),
    "influence": MethodInfo(
        parameters=Influence,
        summary="One Newton step to the optimum of the remaining rows' loss, by their own Hessian.",
        use="For small or nearly convex networks, where it is close to exact.",
        passes_per_step=None,
        passes="one over R, and two over the sample of R for each product with the Hessian",
        parameter_copies=7,
        source="Guo et al. 2020, Certified Data Removal, section 3",
    ),
    "fisher_forgetting": MethodInfo(
        parameters=FisherForgetting,
        summary="Add noise to every weight, the more the less the remaining rows depend on it.",
        use="Where destroying information counts for more than accuracy.",
        passes_per_step=None,
        passes="one over the sample of R forwards, and one for each class",
        parameter_copies=260,  # gradients of 128 rows; fewer rows where they exceed 2^28 elements
        source="Golatkar et al. 2020, Eternal Sunshine of the Spotless Net, section 3",
    ),
    "gradient_reversal": MethodInfo(
        parameters=GradientReversal,
        summary="Give back what the deleted rows' own gradients took from the weights during the training.",
        use="After a training by SGD that kept its trajectory, when no remaining row may be read.",
        passes_per_step=None,
        passes="one over F for each epoch of the training",
        parameter_copies=4,
        source="Thudi et al. 2022, Unrolling SGD, section 4",
    ),
    "sharp_minmax": MethodInfo(
        parameters=SharpMinMax,
        summary=(
            "Split the parameters by the size of their forget gradient: sharpness-aware minimisation on the "
            "part that keeps, sharpness maximisation on the part that forgets."
        ),
        use="Where one should see which weights forget; it goes no further than an unseen row would.",
        passes_per_step=2,
        passes="2 a step, or 4 with ascents by the gradient, and one pass over F",
        parameter_copies=5,
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
