"""What every unlearning method can be told: fields with their ranges, defaults and meanings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from app.jobs.params.training import Objective, Plain
from app.jobs.params.types import STRICT, BatchSize, NonNegative, Precision, Rate, Schedule, StepBudget

Fraction = Annotated[float, Field(gt=0, lt=1)]
Alpha = Annotated[
    float, Field(gt=0, le=1, description="The share of keeping: smaller forgets harder, 1 not at all.")
]
ForgetBatch = Annotated[BatchSize, Field(description="Rows of F a step.")]
ObjectiveOf = Annotated[
    Objective, Field(description="`plain`, or sharpness-aware: `sam` or `asam`, with `rho`.")
]
MaskFraction = Annotated[Fraction, Field(description="The share of all weights that the mask marks.")]
MaskEnd = Annotated[
    Literal["top", "bottom"],
    Field(description="Mark the weights with the largest forget gradients, or the smallest."),
]
Ceiling = Annotated[
    Literal["none", "unseen"],
    Field(
        description=(
            "How far the loss of a row of F is raised: without end, or to that of an unseen row of its class."
        )
    ),
]
Damping = Annotated[
    float,
    Field(gt=0, le=1e6, description="Added to the curvature everywhere; larger is more careful."),
]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What all methods share that take steps.

    The budget bounds them; the reading that is kept decides which step's network is the result.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    steps: Annotated[StepBudget, Field(description="How many at most.")] = 100
    epochs: Annotated[
        float | None,
        Field(gt=0, le=10_000, description="The budget as passes over the rows instead of `steps`."),
    ] = None
    learning_rate: Annotated[Rate, Field(description="At the first step.")] = 0.01
    schedule: Annotated[Schedule, Field(description="How the rate falls, over the whole budget.")] = "linear"
    optimiser: Annotated[Literal["sgd", "adamw"], Field(description="What turns gradients into steps.")] = (
        "sgd"
    )
    momentum: Annotated[
        float, Field(ge=0, lt=1, description="Of SGD; of AdamW the decay of the gradient's mean.")
    ] = 0.9
    second_momentum: Annotated[
        float, Field(ge=0, lt=1, description="Of AdamW: the decay of the squared gradient's mean.")
    ] = 0.999
    weight_decay: Annotated[NonNegative, Field(description="Pulls every weight to 0.")] = 5e-4
    clip_norm: Annotated[
        float | None, Field(gt=0, description="The longest that a step's combined gradient may be.")
    ] = None
    precision: Annotated[Precision, Field(description="What convolutions are computed in.")] = "auto"
    readings: Annotated[
        int, Field(ge=0, le=1000, description="How often the method looks at its own result; 0: never.")
    ] = 10
    keep: Annotated[
        Literal["best", "nearest", "last"],
        Field(
            description=(
                "The network to end with: of the best score, of the forget accuracy that is nearest to the "
                "target (SCRUB's rewind), or the last."
            )
        ),
    ] = "best"
    rebound_steps: Annotated[
        int,
        Field(ge=0, le=10_000, description="Plain steps on R taken by a copy, to see whether F comes back."),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class Iterative(Steps):
    """What those share that look at R in every step."""

    retain_batch_size: Annotated[BatchSize, Field(description="Rows of R a step.")] = 64


@dataclass(frozen=True, kw_only=True)
class Retrain:
    """No parameters: the version's own recipe, from a fresh initialisation, on the remaining rows."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT


@dataclass(frozen=True, kw_only=True)
class Finetune(Iterative):
    """Go on training on the remaining rows alone."""

    steps: Annotated[StepBudget, Field(description="How many at most.")] = 280
    learning_rate: Annotated[Rate, Field(description="At the first step.")] = 0.1
    objective: ObjectiveOf = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class GradientAscent(Steps):
    """Ascend on the deleted rows alone."""

    steps: Annotated[StepBudget, Field(description="How many at most.")] = 50
    learning_rate: Annotated[Rate, Field(description="At the first step.")] = 1e-3
    clip_norm: Annotated[
        float | None, Field(gt=0, description="The longest that a step's combined gradient may be.")
    ] = 1.0
    forget_batch_size: ForgetBatch = 64
    objective: ObjectiveOf = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class NegGrad(Iterative):
    """alpha * CE(retain) - (1 - alpha) * CE(forget) in one step."""

    steps: Annotated[StepBudget, Field(description="How many at most.")] = 250
    learning_rate: Annotated[Rate, Field(description="At the first step.")] = 0.015
    alpha: Alpha = 0.6
    ceiling: Ceiling = "unseen"
    forget_batch_size: ForgetBatch = 16
    objective: ObjectiveOf = field(default_factory=Plain)
    sharpness_on: Annotated[
        Literal["both", "retain"],
        Field(description="Whether a sharp objective covers the whole loss or that of R alone."),
    ] = "both"


@dataclass(frozen=True, kw_only=True)
class RandomLabel(Iterative):
    """Teach the deleted rows labels drawn at random, and the remaining rows their own."""

    steps: Annotated[StepBudget, Field(description="How many at most.")] = 150
    forget_weight: Annotated[
        float, Field(gt=0, le=100, description="Weight of the relabelled rows' loss beside that of R.")
    ] = 0.5
    labels: Annotated[
        Literal["other", "any"], Field(description="Draw from the classes but their own, or from all.")
    ] = "other"
    forget_batch_size: ForgetBatch = 64
    objective: ObjectiveOf = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class SalUn(RandomLabel):
    """Random labels, learned by the weights alone that the deleted rows pull at most."""

    mask_fraction: MaskFraction = 0.5
    mask_end: MaskEnd = "top"


@dataclass(frozen=True, kw_only=True)
class L1Sparse(Iterative):
    """Go on training on the remaining rows while the weights are pulled to zero."""

    steps: Annotated[StepBudget, Field(description="How many at most.")] = 280
    learning_rate: Annotated[Rate, Field(description="At the first step.")] = 0.05
    l1: Annotated[
        float,
        Field(ge=0, le=1, description="Of the sum of all weights' sizes; it falls to 0 linearly."),
    ] = 5e-4
    objective: ObjectiveOf = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class Scrub(Iterative):
    """Leave the original's outputs on the deleted rows, stay with them on the remaining ones, by turns."""

    steps: Annotated[StepBudget, Field(description="How many at most, those of ascent left out.")] = 200
    learning_rate: Annotated[Rate, Field(description="At the first step.")] = 5e-3
    rounds: Annotated[
        int,
        Field(ge=1, le=1000, description="How many parts the budget has; ascents begin the first."),
    ] = 3
    ascent_rounds: Annotated[
        int, Field(ge=0, le=1000, description="How many rounds begin with an ascent over all of F.")
    ] = 2
    label_weight: Annotated[NonNegative, Field(description="Weight of CE(R) in a descent.")] = 0.99
    teacher_weight: Annotated[
        NonNegative, Field(description="Weight of the distance to the original in a descent.")
    ] = 0.1
    temperature: Annotated[
        float, Field(gt=0, le=100, description="Softens the outputs that are compared.")
    ] = 4.0
    forget_batch_size: ForgetBatch = 64
    objective: ObjectiveOf = field(default_factory=Plain)


@dataclass(frozen=True, kw_only=True)
class Influence:
    """One Newton step from the original to the optimum of the remaining rows' loss."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    solver: Annotated[
        Literal["conjugate_gradient", "dense"],
        Field(description="Solve by products with the Hessian, or hold the whole Hessian in memory."),
    ] = "conjugate_gradient"
    damping: Damping = 0.05
    weight_decay: Annotated[
        NonNegative, Field(description="Of the training: part of the loss whose optimum is sought.")
    ] = 5e-4
    iterations: Annotated[
        int, Field(ge=1, le=10_000, description="Products with the Hessian at most (conjugate gradient).")
    ] = 100
    tolerance: Annotated[
        float, Field(gt=0, lt=1, description="Relative residual at which the solver stops.")
    ] = 1e-3
    retain_sample: Annotated[
        int, Field(ge=1, description="Rows of R that the Hessian is taken over; all, if there are fewer.")
    ] = 4096
    scale: Annotated[
        float, Field(gt=0, le=1000, description="Length of the step as a multiple of Newton's.")
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class FisherForgetting:
    """Add noise where the remaining rows do not need the weights to be exact."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    curvature: Annotated[
        Literal["diagonal", "full"],
        Field(description="The Fisher information's diagonal, or all of it: squared in the weights."),
    ] = "diagonal"
    noise: Annotated[
        float,
        Field(gt=0, le=1e3, description="alpha: the noise's covariance is alpha * F^(-1/2)."),
    ] = 1e-7
    damping: Damping = 1e-8
    retain_sample: Annotated[
        int, Field(ge=1, description="Rows of R that the information is taken over; all, if there are fewer.")
    ] = 4096


@dataclass(frozen=True, kw_only=True)
class GradientReversal:
    """Give back what the deleted rows' own gradients took from the weights during the training."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    anchor: Annotated[
        Literal["trajectory", "initial", "final"],
        Field(
            description=(
                "At which weights gradients are taken: those that each epoch began with, which the training "
                "must have kept (`trajectory` in the recipe); the first; or the last."
            )
        ),
    ] = "trajectory"
    scale: Annotated[
        float, Field(gt=0, le=100, description="How much is given back; 1 is what was taken, to first order.")
    ] = 1.0
    precision: Annotated[Precision, Field(description="What convolutions are computed in.")] = "auto"
    verify: Annotated[
        bool,
        Field(
            description=(
                "Repeat the training without the rows, in the same order, and tell the distance between the "
                "weights: costs what the training did."
            )
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SharpMinMax(Iterative):
    """One part of the weights forgets (sharpness maximised), the others or all keep (sharpness minimised)."""

    learning_rate: Annotated[Rate, Field(description="At the first step.")] = 0.02
    alpha: Alpha = 0.5
    rho: Annotated[
        NonNegative, Field(description="Length of the ascent step; 0: no sharpness, at the same cost.")
    ] = 0.2
    adaptive: Annotated[bool, Field(description="Scale the ascent by the size of each weight (ASAM).")] = True
    sharpness_weight: Annotated[
        NonNegative, Field(description="lambda; 0: plain gradients, at the same cost.")
    ] = 1.0
    mask_fraction: MaskFraction = 0.5
    mask_end: MaskEnd = "top"
    keeps: Annotated[
        Literal["rest", "all"],
        Field(description="Whether the keeping step moves the other weights alone, or all of them."),
    ] = "all"
    perturb: Annotated[
        Literal["own", "all"],
        Field(description="Whether an ascent by the gradient moves a half's own weights or all."),
    ] = "own"
    ascent: Annotated[
        Literal["gradient", "momentum"],
        Field(
            description=(
                "What the ascent follows: each batch's own gradient, or the momentum so far, which takes no "
                "pass of its own and halves the cost of a step."
            )
        ),
    ] = "momentum"
    ceiling: Ceiling = "unseen"
    forget_batch_size: ForgetBatch = 32
    freeze_statistics: Annotated[
        bool, Field(description="Leave the running statistics of batch normalisation as they are.")
    ] = False
    as_released: Annotated[
        bool,
        Field(
            description=(
                "Do what the published code does: mark the smallest gradients, and let the forgetting step "
                "move every weight. For comparison only."
            )
        ),
    ] = False


MethodParameters = (
    Retrain
    | Finetune
    | GradientAscent
    | NegGrad
    | RandomLabel
    | SalUn
    | L1Sparse
    | Scrub
    | Influence
    | FisherForgetting
    | GradientReversal
    | SharpMinMax
)
