"""How a network is trained from scratch: objectives and recipes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from app.jobs.params.types import STRICT, BatchSize, NonNegative, Precision, Rate, Share, TrainingSchedule

Every = Annotated[int, Field(ge=1, le=1000)]


@dataclass(frozen=True, kw_only=True)
class Plain:
    """Plain cross-entropy. One forward/backward pass a step."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Literal["plain"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Sam:
    """Sharpness-aware minimisation (Foret et al. 2021). Two forward/backward passes a step."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Literal["sam"]
    rho: NonNegative = 0.05


@dataclass(frozen=True, kw_only=True)
class Asam:
    """Adaptive sharpness-aware minimisation (Kwon et al. 2021). Two forward/backward passes a step."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Literal["asam"]
    rho: NonNegative = 0.5


@dataclass(frozen=True, kw_only=True)
class GradientSparsity:
    """Cross-entropy plus rho times a norm of its gradient: what is learned is easier to unlearn.

    Two forward/backward passes a step by finite differences, or one and a product with the Hessian, which
    costs about two more; in float32 whatever the precision.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Literal["gradient_sparsity"]
    rho: Annotated[
        NonNegative,
        Field(
            description=(
                "How much the norm of a batch's gradient counts. What suits depends on batch size and norm."
            )
        ),
    ] = 1e-4
    norm: Annotated[
        Literal["l1", "l2", "linf"],
        Field(
            description="Of the gradient. For the same effect `l2` takes a rho some hundreds of times larger."
        ),
    ] = "l1"
    form: Annotated[
        Literal["finite_difference", "exact"],
        Field(
            description=(
                "How the penalty's gradient is got: by a second gradient a small step away, or by "
                "differentiating twice. On networks with ReLU the two are not the same."
            )
        ),
    ] = "finite_difference"
    epsilon: Annotated[
        float,
        Field(
            gt=0, le=1, description="Of finite differences: how long the small step is, see `epsilon_unit`."
        ),
    ] = 1e-3
    epsilon_unit: Annotated[
        Literal["automatic", "relative", "absolute"],
        Field(
            description=(
                "`relative`: the step's Euclidean length as a share of the weights'; `absolute`: the number "
                "that multiplies the direction (for `l1`: every weight's own step); `automatic`: relative at "
                "first, then halved or raised by what each epoch's check says."
            )
        ),
    ] = "automatic"
    group: Annotated[
        Literal["all", "matrices", "body", "head"],
        Field(
            description=(
                "Of which weights the gradient is penalised: all; those of convolutions and linear layers; "
                "all but the last layer; the last layer alone."
            )
        ),
    ] = "all"
    every: Annotated[
        Every,
        Field(
            description="Penalise every so many steps, with rho so many times as large; the others are plain."
        ),
    ] = 1


@dataclass(frozen=True, kw_only=True)
class StdLoss:
    """Cross-entropy plus gamma times the spread of the logits (Thudi et al. 2022). One pass a step."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Literal["std_loss"]
    gamma: Annotated[
        NonNegative,
        Field(description="Times the mean standard deviation of a row's logits, divided by the classes."),
    ] = 1.0


Objective = Annotated[Plain | Sam | Asam, Field(discriminator="name")]
TrainingObjective = Annotated[Plain | Sam | Asam | GradientSparsity | StdLoss, Field(discriminator="name")]


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """How a network is trained from scratch; kept with every version, so that retraining is possible."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 40
    batch_size: Annotated[BatchSize, Field(description="Rows a step.")] = 64
    accumulation: Annotated[
        int,
        Field(
            ge=1,
            le=1024,
            description=(
                "In how many parts a step's rows go through the network: less memory for the same gradient, "
                "except that batch normalisation sees the parts."
            ),
        ),
    ] = 1
    learning_rate: Annotated[Rate, Field(description="The highest.")] = 0.05
    warmup_share: Annotated[Share, Field(description="Of all steps, in which the rate rises.")] = 0.15
    schedule: Annotated[
        TrainingSchedule,
        Field(
            description=(
                "How the rate goes on: `step` divides it by 10 after half and three quarters of the steps; "
                "`one_cycle` rises from a 25th and falls to nothing, both by a cosine."
            )
        ),
    ] = "linear"
    optimiser: Annotated[Literal["sgd", "adamw"], Field(description="What turns gradients into steps.")] = (
        "sgd"
    )
    momentum: Annotated[
        float, Field(ge=0, lt=1, description="Of SGD; of AdamW the decay of the gradient's mean.")
    ] = 0.9
    second_momentum: Annotated[
        float, Field(ge=0, lt=1, description="Of AdamW: the decay of the squared gradient's mean.")
    ] = 0.999
    nesterov: Annotated[bool, Field(description="Of SGD: look ahead along the momentum.")] = True
    weight_decay: Annotated[NonNegative, Field(description="Pulls every weight to 0.")] = 5e-4
    clip_norm: Annotated[
        float | None, Field(gt=0, description="The longest that a step's gradient may be.")
    ] = None
    label_smoothing: Annotated[
        float, Field(ge=0, lt=1, description="The share of the target that is spread over all classes.")
    ] = 0.0
    augmentation: Literal["none", "flip", "flip_crop"] = "none"
    precision: Precision = "auto"
    averaging: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="End with an exponential moving average of the weights: its decay a step.",
        ),
    ] = None
    patience: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000,
            description=(
                "Stop after so many epochs without a better accuracy on the validation rows, and keep the "
                "best epoch's weights; null: never, and keep the last."
            ),
        ),
    ] = None
    trajectory: Annotated[
        bool,
        Field(
            description=(
                "Keep the weights that every epoch begins with, a file each: the method `gradient_reversal` "
                "needs them."
            )
        ),
    ] = False
    objective: TrainingObjective = field(default_factory=Plain)


RECIPE: TypeAdapter[TrainingRecipe] = TypeAdapter(TrainingRecipe)
