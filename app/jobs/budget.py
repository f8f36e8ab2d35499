"""What an audit may spend on networks to compare with, in units of one training of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

_MOST_REFERENCES = 4
_SHADOWS_A_UNIT = 2  # each is trained on half of the rows

AuditBudget = Annotated[
    int,
    Field(
        ge=0,
        le=64,
        description=(
            "What the audit may spend on networks to compare with, in trainings of the model: up to four"
            " retrained on the remaining rows, then two shadows for each further unit."
        ),
    ),
]


@dataclass(frozen=True)
class Bought:
    """Networks to compare with: retrained on the remaining rows, and trained on random halves."""

    references: int
    shadows: int


def bought(budget: int) -> Bought:
    """What a budget buys: references first, which judge most directly; more than four of them add little."""
    references = min(budget, _MOST_REFERENCES)
    return Bought(references, _SHADOWS_A_UNIT * (budget - references))
