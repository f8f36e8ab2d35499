"""The comparisons a verdict rests on: what is compared, by which margin, and what came out.

A check compares one figure of one network with the same figure of another, row by row. It is `beyond` where
the difference exceeds the policy's margin and is significant after Holm's correction over its family
`within` where its 90% interval lies inside the margin (two one-sided tests at 5%; Schuirmann 1987), else
`undecided`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from statistics import NormalDist
from typing import Any, NamedTuple

from app.jobs.policies import Thresholds
from app.reports.questions import (
    AREAS,
    USEFULNESS,
    Against,
    Direction,
    Measure,
    Network,
    Question,
    figure,
    questions,
)


class Verdict(StrEnum):
    """What the audit found."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_VALID = "not_valid"


class Outcome(StrEnum):
    """What one check found."""

    WITHIN = "within"
    BEYOND = "beyond"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison: `network` minus `against` in `measure`; differences and margin are shares.

    `direction` says which differences count against the network; p is one-sided where only one does.
    `decisive` checks make the verdict, the others are reported. `rows`: how many it was measured on (for
    membership, forget rows); `rows_to_decide`: about how many an undecided check needs, if more would help.
    `usual`: the range of the difference among retrained networks, where the figure has to be read by that.
    """

    measure: Measure
    network: Network
    against: Against
    direction: Direction
    decisive: bool
    difference: float
    low90: float
    high90: float
    margin: float
    rows: int
    p: float
    adjusted_p: float = 1.0
    outcome: Outcome = Outcome.UNDECIDED
    rows_to_decide: int | None = None
    usual: tuple[float, float] | None = None

    @property
    def is_unusual(self) -> bool:
        """Whether a retrained network would hardly differ so much."""
        return self.usual is None or not self.usual[0] <= self.difference <= self.usual[1]

    @property
    def excess(self) -> float:
        """The difference as far as it counts against the network."""
        return {"both": abs(self.difference), "higher": self.difference, "lower": -self.difference}[
            self.direction
        ]

    @property
    def is_inside(self) -> bool:
        """Whether the 90% interval lies inside the margin, in the directions that count."""
        above_floor = self.direction == "higher" or self.low90 > -self.margin
        return above_floor and (self.direction == "lower" or self.high90 < self.margin)


def checks_of(figures: Mapping[str, Any], thresholds: Thresholds) -> list[Check]:
    """Every check that these figures allow, settled; one whose figure is missing is left out."""
    asked = [_check(question, figures, thresholds) for question in questions(figures, thresholds)]
    return _settle([check for check in asked if check is not None], thresholds.significance)


def _check(question: Question, figures: Mapping[str, Any], thresholds: Thresholds) -> Check | None:
    found = _comparison(question, figures)
    rows = figure(figures, "sets", question.measure if question.measure in USEFULNESS else "forget")
    if found is None or not rows:
        return None
    check = Check(
        measure=question.measure,
        network=question.network,
        against=question.against,
        direction=question.direction,
        decisive=question.decisive,
        difference=found.difference,
        low90=found.low90,
        high90=found.high90,
        margin=_margin(question.measure, thresholds),
        rows=rows,
        p=found.p,
        usual=_usual(question, figures),
    )
    if check.direction == "both":
        return check
    return replace(check, p=found.p / 2 if check.excess > 0 else 1.0)


class _Comparison(NamedTuple):
    difference: float
    low90: float
    high90: float
    p: float


def _comparison(question: Question, figures: Mapping[str, Any]) -> _Comparison | None:
    """The difference asked for with its 90% interval and two-sided p, None where it was not measured."""
    found = figure(figures, *question.path) or {}
    values = [figure(found, key) for key in (question.value, "low90", "high90", "p")]
    if not all(isinstance(value, int | float) for value in values):
        return None
    difference, low90, high90, p = values
    chance = _chance(question)
    return _Comparison(difference - chance, low90 - chance, high90 - chance, p)


def _chance(question: Question) -> float:
    return 0.5 if question.value == "auc" else 0.0


def _usual(question: Question, figures: Mapping[str, Any]) -> tuple[float, float] | None:
    if question.usual is None:
        return None
    low, high = (figure(figures, *question.usual, end) for end in ("low", "high"))
    return low - _chance(question), high - _chance(question)


def _margin(measure: Measure, thresholds: Thresholds) -> float:
    if measure in AREAS:
        return thresholds.auc_margin
    return thresholds.utility_margin if measure in USEFULNESS else thresholds.forget_margin


def _settle(checks: Sequence[Check], significance: float) -> list[Check]:
    """Adjust p over each family (the decisive checks, then each network's reported ones), then conclude."""
    settled = []
    for _, family in groupby(checks, key=lambda check: (check.decisive, check.network)):
        members = list(family)
        for check, p in zip(members, holm([check.p for check in members]), strict=True):
            settled.append(_conclude(replace(check, adjusted_p=p), significance))
    return settled


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def _conclude(check: Check, significance: float) -> Check:
    if check.excess > check.margin and check.adjusted_p < significance and check.is_unusual:
        return replace(check, outcome=Outcome.BEYOND)
    if check.is_inside:
        return replace(check, outcome=Outcome.WITHIN)
    return replace(check, rows_to_decide=_rows_to_decide(check))


def _rows_to_decide(check: Check) -> int | None:
    """How many rows would find a network that truly does not differ inside the margin four times out of five.

    The interval is taken to shrink as 1 / sqrt(rows). The observed difference, itself uncertain, plays no
    part; None where there already are as many rows, so that it is the difference that stands in the way.
    """
    z = NormalDist().inv_cdf
    power = z(0.9 if check.direction == "both" else 0.8)
    half = (check.high90 - check.low90) / 2
    needed = math.ceil(check.rows * (half / check.margin * (1 + power / z(0.95))) ** 2)
    return needed if needed > check.rows else None
