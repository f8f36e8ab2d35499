"""How a network is trained from scratch: objectives and recipes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from app.jobs.params.types import STRICT, BatchSize, NonNegative, Precision, Rate, Schedule, Share


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


Objective = Annotated[Plain | Sam | Asam, Field(discriminator="name")]


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """How a network is trained from scratch; kept with every version, so that retraining is possible."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
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


RECIPE: TypeAdapter[TrainingRecipe] = TypeAdapter(TrainingRecipe)
