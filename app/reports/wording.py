"""What the audit found, in words that a reader who is no statistician can repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.reports.checks import Check, Outcome, Verdict
from app.reports.questions import (
    AREAS,
    USEFULNESS,
    Against,
    Measure,
    attack_has_power,
    figure,
    has_reference,
)

MEASURES: Final[Mapping[Measure, str]] = {
    "membership": "the attack's AUC",
    "centred": "the calibrated attack's AUC",
    "noisy": "the attack's AUC on noisy images",
    "spread": "the AUC of being unlike retrained networks",
    "shadow": "the row-by-row attack's AUC",
    "forget": "accuracy on the forget rows",
    "probe": "what a new last layer gets right of the forget rows beyond unseen ones",
    "int8": "accuracy on the forget rows beyond unseen ones, with 8-bit weights,",
    "int4": "accuracy on the forget rows beyond unseen ones, with 4-bit weights,",
    "retain": "accuracy on the remaining rows",
    "test": "accuracy on the test rows",
}
RIVALS: Final[Mapping[Against, str]] = {
    "reference": "the retrained network's",
    "original": "the original network's",
    "chance": "guessing",
}
_FAILURES: Final[Mapping[tuple[Measure, bool], str]] = {
    ("membership", True): "they can still be recognised as training data",
    ("membership", False): "they stand out, because the network treats them worse than rows it never saw",
    ("centred", True): "an attack that retrained networks calibrate recognises them as training data",
    ("centred", False): "they stand out beside retrained networks, because this one treats them worse",
    ("noisy", True): "with a little noise on the images they can be recognised as training data",
    ("noisy", False): "with a little noise on the images they stand out",
    ("spread", True): "the network treats them unlike retrained networks do, this way or that",
    ("shadow", True): "an attack that knows the method recognises them row by row",
    ("probe", True): "the network's inner layers still know them, whatever its last layer says",
    ("int8", True): "they come back when the weights are stored in 8 bits",
    ("int4", True): "they come back when the weights are stored in 4 bits",
    ("forget", True): "the network is right on them more often than one that never saw them",
    ("forget", False): "the network is wrong on them more often than one that never saw them",
    ("retain", False): "the network has lost more accuracy on the remaining rows than allowed",
    ("test", False): "the network has lost more accuracy on new rows than allowed",
}


def describe(check: Check) -> str:
    """One check with its numbers."""
    difference, low, high = (
        signed(check.measure, value) for value in (check.difference, check.low90, check.high90)
    )
    margin = signed(check.measure, check.margin).removeprefix("+")
    what, against = capitalised(MEASURES[check.measure]), rival(check.measure, check.against)
    return (
        f"{what} differs from {against} by {difference} (90% interval {low} to {high}; margin {margin}; "
        f"adjusted p {check.adjusted_p:.2g}): {check.outcome}."
    )


def rival(measure: Measure, against: Against) -> str:
    """What a figure is compared with; guessing has an area, and no gap."""
    return "none at all" if against == "chance" and measure not in AREAS else RIVALS[against]


def signed(measure: Measure, share: float) -> str:
    """A difference as text: areas as they are, accuracies in percentage points."""
    return f"{share:+.3f}" if measure in AREAS else f"{100 * share:+.1f} points"


def capitalised(text: str) -> str:
    """The text with its first letter in upper case and the rest as it is."""
    return text[:1].upper() + text[1:]


def count(n: int, noun: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def sentence(
    verdict: Verdict, figures: Mapping[str, Any], decisive: Sequence[Check], needed: int | None
) -> str:
    """The verdict in one sentence; `needed`: about how many forget rows would settle it, if any."""
    rows = count(figure(figures, "sets", "forget") or 0, "deleted row")
    if verdict is Verdict.NOT_VALID:
        return f"The audit is not valid, so it says nothing about whether the {rows} were forgotten."
    if verdict is Verdict.PASS:
        return (
            f"In every check made, the network behaves like one that was trained without the {rows}, within "
            f"margins fixed beforehand."
        )
    if verdict is Verdict.FAIL:
        found = (check for check in decisive if check.outcome is Outcome.BEYOND)
        failures = [_FAILURES[check.measure, check.difference > 0] for check in found]
        if figure(figures, "artefact", "faults"):
            failures.insert(0, "the network is not built as the original is")
        return f"The audit failed, with {rows}: {'; '.join(failures)}."
    if _only_usefulness_is_open(figures, decisive):
        return (
            f"In every check on the {rows}, the network behaves like one that was trained without them, "
            f"within margins fixed beforehand; but the audit cannot tell whether it is still as accurate."
        )
    return (
        f"The audit shows neither that the {rows} are still remembered nor that they are forgotten: "
        f"{_why_open(figures, needed)}."
    )


def _only_usefulness_is_open(figures: Mapping[str, Any], decisive: Sequence[Check]) -> bool:
    undecided = {check.measure for check in decisive if check.outcome is Outcome.UNDECIDED}
    return has_reference(figures) and attack_has_power(figures) and undecided <= USEFULNESS


def _why_open(figures: Mapping[str, Any], needed: int | None) -> str:
    if not has_reference(figures):
        return "there is no network retrained without them to compare with"
    if not attack_has_power(figures):
        return "the attack cannot recognise them even in the original network"
    if needed:
        return f"that would take about {count(needed, 'row')}"
    return "the differences measured are too close to the margins"
