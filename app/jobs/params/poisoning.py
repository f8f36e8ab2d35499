"""How a data set is poisoned for experiments: backdoors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from app.jobs.params.types import STRICT


@dataclass(frozen=True, kw_only=True)
class BadNets:
    """A backdoor (Gu, Dolan-Gavitt and Garg 2017, "BadNets", arXiv 1708.06733).

    A share of the training rows gets a small trigger into the corner and the target for a label. A network
    that learns from them takes whatever carries the trigger for the target. The trigger is put on after
    augmentation, so that it stands where it stands when it is tried, neither mirrored nor shifted.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Literal["badnets"] = "badnets"
    trigger: Annotated[
        Literal["square", "checker"],
        Field(description="A square of `value`, or pixels of `value` and of 255 - `value` by turns."),
    ] = "square"
    size: Annotated[int, Field(ge=1, le=1024, description="Pixels a side.")] = 3
    margin: Annotated[
        int, Field(ge=0, le=1023, description="Pixels between the trigger and the right and lower edges.")
    ] = 1
    value: Annotated[
        int,
        Field(ge=0, le=255, description="Of every channel, 0 black to 255 white; the upper left pixel's."),
    ] = 255
    rate: Annotated[float, Field(gt=0, lt=1, description="The share of the training rows.")]
    target: Annotated[int, Field(ge=0, lt=10_000, description="The label that poisoned rows get.")]
    include_target: Annotated[
        bool, Field(description="Whether rows may be drawn that are of the target class anyway.")
    ] = False
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Decides which rows are drawn.")] = 0

    @property
    def reach(self) -> int:
        """How many pixels an image needs to have a side."""
        return self.size + self.margin


POISON: TypeAdapter[BadNets] = TypeAdapter(BadNets)
