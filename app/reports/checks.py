"""The comparisons a verdict rests on: what is compared, by which margin, and what came out.

A check compares one figure of one network with the same figure of another, row by row. It is `beyond` where
the difference exceeds the policy's margin and is significant after Holm's correction over its family,
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
from typing import Any, Final, Literal, NamedTuple

from app.jobs.policies import Thresholds

Measure = Literal["membership", "forget", "retain", "test"]
Network = Literal["unlearned", "reference"]
Against = Literal["reference", "original", "chance"]
Direction = Literal["both", "higher", "lower"]


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
    asked = [_check(question, figures, thresholds) for question in questions(figures)]
    return _settle([check for check in asked if check is not None], thresholds.significance)


def figure(figures: Mapping[str, Any], *path: str) -> Any:  # noqa: ANN401 - a value of JSON data
    """The figure at this path, None where it or anything on the way is missing."""
    value: Any = figures
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def attack_has_power(figures: Mapping[str, Any]) -> bool:
    """Whether the attack detects the original; if not, its finding nothing afterwards says nothing."""
    low = figure(figures, "membership", "original", "low")
    return low is not None and low > 0.5


class Question(NamedTuple):
    """A check to be made, if the figures allow it."""

    measure: Measure
    network: Network
    against: Against
    decisive: bool


_WITH_REFERENCE: Final = (
    Question("membership", "unlearned", "reference", decisive=True),
    Question("forget", "unlearned", "reference", decisive=True),
    Question("retain", "unlearned", "reference", decisive=True),
    Question("test", "unlearned", "reference", decisive=True),
    Question("retain", "unlearned", "original", decisive=False),
    Question("test", "unlearned", "original", decisive=False),
    Question("retain", "reference", "original", decisive=False),
    Question("test", "reference", "original", decisive=False),
)
_WITHOUT_REFERENCE: Final = (
    Question("membership", "unlearned", "chance", decisive=True),
    Question("retain", "unlearned", "original", decisive=True),
    Question("test", "unlearned", "original", decisive=True),
)


def has_reference(figures: Mapping[str, Any]) -> bool:
    """Whether the audit had a network retrained on the remaining rows to compare with."""
    return figure(figures, "differences", "reference") is not None


def questions(figures: Mapping[str, Any]) -> tuple[Question, ...]:
    """The checks that make a verdict on such figures, and those that are reported beside it."""
    return _WITH_REFERENCE if has_reference(figures) else _WITHOUT_REFERENCE


class _Comparison(NamedTuple):
    difference: float
    low90: float
    high90: float
    p: float


def _comparison(question: Question, figures: Mapping[str, Any]) -> _Comparison | None:
    """The difference asked for with its 90% interval and two-sided p, None where it was not measured."""
    if question.against == "chance":
        found, keys = figure(figures, "membership", question.network), ("auc", "low90", "high90", "p")
    else:
        differences = ("differences", question.against)
        group = ("reference_utility",) if question.network == "reference" else differences
        found, keys = figure(figures, *group, question.measure), _Comparison._fields
    values = [figure(found or {}, key) for key in keys]
    if not all(isinstance(value, int | float) for value in values):
        return None
    difference, low90, high90, p = values
    chance = 0.5 if question.against == "chance" else 0.0
    return _Comparison(difference - chance, low90 - chance, high90 - chance, p)


def _direction(question: Question, figures: Mapping[str, Any]) -> Direction:
    """Less accuracy on R or T is a loss, more is none; both are wrong on F, where F and H are comparable."""
    if question.measure in ("retain", "test"):
        return "lower"
    if question.against == "chance" and not figure(figures, "holdout", "exchangeable"):
        return "higher"
    return "both"


def _check(question: Question, figures: Mapping[str, Any], thresholds: Thresholds) -> Check | None:
    found = _comparison(question, figures)
    rows = figure(figures, "sets", "forget" if question.measure == "membership" else question.measure)
    if found is None or not rows:
        return None
    margins = {"membership": thresholds.auc_margin, "forget": thresholds.forget_margin}
    check = Check(
        measure=question.measure,
        network=question.network,
        against=question.against,
        direction=_direction(question, figures),
        decisive=question.decisive,
        difference=found.difference,
        low90=found.low90,
        high90=found.high90,
        margin=margins.get(question.measure, thresholds.utility_margin),
        rows=rows,
        p=found.p,
    )
    if check.direction == "both":
        return check
    return replace(check, p=found.p / 2 if check.excess > 0 else 1.0)


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
    if check.excess > check.margin and check.adjusted_p < significance:
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
