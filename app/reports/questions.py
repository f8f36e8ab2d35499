"""What a verdict asks of an audit's figures, and where in them the answers stand.

A question is asked of one figure of one network. Those that a verdict cannot do without are always asked; the
others where the audit measured them. Pure and free of torch; the layout of the figures is described in
workers/audit/figures.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.jobs.policies import Thresholds

Measure = Literal[
    "membership", "centred", "noisy", "spread", "shadow", "forget", "probe", "int8", "int4", "retain", "test"
]
Network = Literal["unlearned", "reference"]
Against = Literal["reference", "original", "chance"]
Direction = Literal["both", "higher", "lower"]

AREAS: Final = frozenset[Measure]({"membership", "centred", "noisy", "spread", "shadow"})  # AUCs
USEFULNESS: Final = frozenset[Measure]({"retain", "test"})


@dataclass(frozen=True, kw_only=True)
class Question:
    """One comparison to be made, if the figures allow it.

    `path` leads to the figure, `value` names what in it is compared with 0 or, for an area, with 1/2.
    `decisive`: it makes the verdict; others are reported. `required`: without it there is no verdict.
    `usual` leads to the range in which a retrained network's own area lies: what is inside it is no failure.
    """

    measure: Measure
    network: Network = "unlearned"
    against: Against
    path: tuple[str, ...]
    value: Literal["difference", "auc", "gap"] = "difference"
    direction: Direction
    decisive: bool = True
    required: bool = False
    usual: tuple[str, ...] | None = None


def figure(figures: Mapping[str, Any], *path: str) -> Any:  # noqa: ANN401 - a value of JSON data
    """The figure at this path, None where it or anything on the way is missing."""
    value: Any = figures
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def has_reference(figures: Mapping[str, Any]) -> bool:
    """Whether the audit had a network retrained on the remaining rows to compare with."""
    return figure(figures, "differences", "reference") is not None


def look_alike(figures: Mapping[str, Any], thresholds: Thresholds) -> bool:
    """Whether an attack that asks no network cannot tell F from H, as far as that was tried."""
    low = figure(figures, "blind", "low")
    return low is None or low <= 0.5 + thresholds.auc_margin


def attack_has_power(figures: Mapping[str, Any]) -> bool:
    """Whether the attack detects the original; if not, its finding nothing afterwards says nothing.

    It is the attack that the references calibrate, where there are any.
    """
    calibrated = figure(figures, "calibrated", "original", "centred", "low")
    low = figure(figures, "membership", "original", "low") if calibrated is None else calibrated
    return low is not None and low > 0.5


def finds_less(figures: Mapping[str, Any]) -> bool:
    """Whether the same attack finds F less in the unlearned network than in the original, at 95%."""
    calibrated = figure(figures, "calibrated_difference", "high")
    plain = figure(figures, "differences", "original", "membership", "high")
    high = plain if calibrated is None else calibrated
    return high is not None and high < 0


def questions(figures: Mapping[str, Any], thresholds: Thresholds) -> tuple[Question, ...]:
    """The comparisons that make a verdict on such figures, then those that are reported beside it."""
    alike = look_alike(figures, thresholds)
    asked = _with_references(alike) if has_reference(figures) else _without_reference(figures, alike)
    return tuple(each for each in asked if each.required or not each.decisive or _is_there(figures, each))


def _is_there(figures: Mapping[str, Any], question: Question) -> bool:
    known = question.usual is None or figure(figures, *question.usual) is not None
    return known and figure(figures, *question.path) is not None


def _with_references(alike: bool) -> Iterator[Question]:
    """F and H that do not look alike are compared with what references show of them, never with chance."""
    for measure in ("membership", "forget"):
        yield _to_reference(measure, "both")
    yield _to_reference("retain", "lower")
    yield _to_reference("test", "lower")
    yield _calibrated("centred", "calibrated", alike)
    yield _calibrated("noisy", "calibrated_noisy", alike)
    yield Question(
        measure="spread",
        against="chance",
        path=("calibrated", "unlearned", "spread_auc"),
        value="auc",
        direction="higher",
        usual=("calibrated", "unlearned", "held_out_spread"),
    )
    if alike:
        yield Question(
            measure="shadow",
            against="chance",
            path=("shadow_attack", "ulira"),
            value="auc",
            direction="higher",
        )
    yield Question(measure="probe", against="reference", path=("probe", "excess"), direction="higher")
    for bits in ("int8", "int4"):
        yield Question(
            measure=bits, against="reference", path=("rounded", bits, "excess"), direction="higher"
        )
    yield from _reported("unlearned", ("differences", "original"))
    yield from _reported("reference", ("reference_utility",))


def _calibrated(measure: Measure, place: str, alike: bool) -> Question:
    return Question(
        measure=measure,
        against="chance",
        path=(place, "unlearned", "centred"),
        value="auc",
        direction="both",
        usual=None if alike else (place, "unlearned", "held_out"),
    )


def _to_reference(measure: Measure, direction: Direction) -> Question:
    return Question(
        measure=measure,
        against="reference",
        path=("differences", "reference", measure),
        direction=direction,
        required=True,
    )


def _reported(network: Network, place: tuple[str, ...]) -> Iterator[Question]:
    for measure in ("retain", "test"):
        yield Question(
            measure=measure,
            network=network,
            against="original",
            path=(*place, measure),
            direction="lower",
            decisive=False,
        )


def _without_reference(figures: Mapping[str, Any], alike: bool) -> Iterator[Question]:
    """Below chance counts only where F and H are known to be comparable in every respect."""
    direction: Direction = "both" if figure(figures, "holdout", "exchangeable") else "higher"
    yield Question(
        measure="membership",
        against="chance",
        path=("membership", "unlearned"),
        value="auc",
        direction=direction,
        required=True,
    )
    for measure in ("retain", "test"):
        yield Question(
            measure=measure,
            against="original",
            path=("differences", "original", measure),
            direction="lower",
            required=True,
        )
    if alike:
        yield Question(
            measure="noisy", against="chance", path=("noisy", "unlearned"), value="auc", direction=direction
        )
        yield Question(
            measure="probe", against="chance", path=("probe", "unlearned"), value="gap", direction="higher"
        )
