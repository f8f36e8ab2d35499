"""Types and settings that the parameters of several things share."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Share = Annotated[float, Field(ge=0, le=1)]

Rate = Annotated[float, Field(gt=0, le=10)]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

BatchSize = Annotated[int, Field(ge=1, le=65_536)]

StepBudget = Annotated[int, Field(ge=1, le=1_000_000)]

Schedule = Literal["constant", "linear", "cosine"]

TrainingSchedule = Literal["constant", "linear", "cosine", "step", "one_cycle"]

Precision = Literal["auto", "fp32", "bf16"]

STRICT = ConfigDict(extra="forbid")


def plain_data(parameters: DataclassInstance) -> dict[str, Any]:
    """Any parameter object of this module as JSON-ready data, every default spelled out."""
    return asdict(parameters)
