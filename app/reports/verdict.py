"""From figures to a verdict, and from a verdict to the decision whether to publish.

Pure and free of torch, so that anybody can derive a report's verdict again from the figures in it. The layout
of the figures is described in workers/audit/figures.py; docs/audit.md explains the rules in plain words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.jobs.policies import PublishWhen, Thresholds
from app.reports.checks import Check, Outcome, Verdict, checks_of
from app.reports.questions import (
    USEFULNESS,
    Network,
    attack_has_power,
    figure,
    finds_less,
    has_reference,
    look_alike,
    questions,
)
from app.reports.wording import MEASURES, RIVALS, count, describe, sentence

__all__ = ["Action", "Decision", "Judgement", "Verdict", "judge", "publish_decision"]

_BY_CONSTRUCTION: Final = (
    "The network was trained from scratch without these rows: it has forgotten them by construction, "
    "whatever an attack says."
)
_PREFERRED: Final = (
    "A network retrained without these rows exists. It has forgotten them by construction and lost no "
    "accuracy beyond the margin, so it is preferred to the approximate network that it was made to judge."
)
_USEFUL: Final = "No loss of accuracy beyond the margin was found."
_USELESS: Final = "But it lost accuracy beyond the margin, or that could not be measured."
_POWERLESS: Final = (
    "The audit found no failure, but its attack does not detect even the original network, so it could "
    "hardly have found one."
)
_UNCHANGED: Final = (
    "The audit found no failure, but its attack does not find the rows less than in the original network, so "
    "nothing shows that any was forgotten."
)
_GROUNDS_TO_PUBLISH: Final = {
    Verdict.PASS: "The audit passed.",
    Verdict.INCONCLUSIVE: (
        "The audit found no failure. Its attack detects the original network, so it could have found one, "
        "and it finds the rows less than there."
    ),
}
_BUILT_OTHERWISE: Final = "The network is not built as the original is: {}"
_RELEARNED: Final = (
    "Trained on the deleted rows, the network takes {} times as many steps to know them again as a retrained "
    "one takes to learn them; the policy accepts a factor of {:g} either way."
)
_INVALID: Final = "The audit is not valid, and the method gives no guarantee of its own."
_ASKED: Final = "The policy leaves the decision to a named person"
_NEXT: Final = "The next method of the ladder follows."
_LAST: Final = "No further method is left: a person has to decide."


class Action(StrEnum):
    """What happens to the audited network."""

    PUBLISH = "publish"
    REJECT = "reject"
    AWAIT_APPROVAL = "await_approval"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict with its grounds. `decides_at`: about how many forget rows would settle it, if any."""

    verdict: Verdict
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    decides_at: int | None
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the publish rule says. `network`: which one it concerns, the job's own result or its reference."""

    action: Action
    network: Network
    rule: str
    reason: str

    @property
    def publish(self) -> bool:
        return self.action is Action.PUBLISH


def judge(figures: Mapping[str, Any], thresholds: Thresholds) -> Judgement:
    """The verdict that these figures support under these thresholds.

    `not_valid`: F and H are not comparable, or a figure is missing. `fail`: a decisive check is beyond its
    margin, or the network is not built as the original is. `pass`: there is a retrained reference, the attack
    detects the original, every decisive check is within its margin, and F is relearned about as slowly as a
    retrained network learns it, if that was tried. `inconclusive`: anything else.
    """
    checks = checks_of(figures, thresholds)
    decisive = [check for check in checks if check.decisive]
    faults = _faults(figures, thresholds, decisive)
    beyond = [check for check in decisive if check.outcome is Outcome.BEYOND]
    built_otherwise = [
        _BUILT_OTHERWISE.format(fault) for fault in figure(figures, "artefact", "faults") or ()
    ]
    open_reasons = _open_reasons(figures, decisive, thresholds)
    decides_at = None
    if faults:
        verdict, reasons = Verdict.NOT_VALID, faults
    elif built_otherwise or beyond:
        verdict, reasons = Verdict.FAIL, [*built_otherwise, *(describe(check) for check in beyond)]
    elif open_reasons:
        verdict, reasons, decides_at = Verdict.INCONCLUSIVE, open_reasons, _decides_at(figures, decisive)
    else:
        verdict, reasons = Verdict.PASS, [describe(check) for check in decisive]
    return Judgement(
        verdict=verdict,
        reasons=tuple(reasons),
        checks=tuple(checks),
        decides_at=decides_at,
        sentence=sentence(verdict, figures, decisive, decides_at),
    )


def publish_decision(
    judgement: Judgement,
    figures: Mapping[str, Any],
    *,
    publish_when: PublishWhen,
    exact: bool,
    last_rung: bool,
    prefer_exact: bool,
) -> Decision:
    """Apply the policy's publish rule.

    A network trained on exactly the remaining rows, by an exact method or as the reference that
    `prefer_exact` prefers, has forgotten by construction: utility alone decides. `approved` always leaves the
    last word to a named person, except where a later method of the ladder may do better.

    Args:
        judgement: of the same figures.
        exact: the audited network comes from an exact method.
        last_rung: the ladder has no method left.
        prefer_exact: publish the reference, if there is one, rather than what it judged.
    """
    if exact:
        return _decide_exact(judgement, publish_when, last_rung=last_rung)
    if prefer_exact and _utility_holds(judgement, "reference"):
        action, reason = _unless_asked(publish_when, _PREFERRED)
        return Decision(action=action, network="reference", rule="prefer_exact", reason=reason)
    return _decide_approximate(judgement, figures, publish_when, last_rung=last_rung)


def _unless_asked(publish_when: PublishWhen, reason: str) -> tuple[Action, str]:
    if publish_when == "approved":
        return Action.AWAIT_APPROVAL, f"{reason} {_ASKED}."
    return Action.PUBLISH, reason


def _decide_exact(judgement: Judgement, publish_when: PublishWhen, *, last_rung: bool) -> Decision:
    if _utility_holds(judgement, "unlearned"):
        action, found = _unless_asked(publish_when, _USEFUL)
    elif last_rung:
        action, found = Action.AWAIT_APPROVAL, f"{_USELESS} {_LAST}"
    else:
        action, found = Action.REJECT, f"{_USELESS} {_NEXT}"
    return Decision(action=action, network="unlearned", rule="exact", reason=f"{_BY_CONSTRUCTION} {found}")


def _decide_approximate(
    judgement: Judgement, figures: Mapping[str, Any], publish_when: PublishWhen, *, last_rung: bool
) -> Decision:
    verdict = judgement.verdict
    publishes = {
        "passed": verdict is Verdict.PASS,
        "not_failed": verdict is Verdict.PASS
        or (verdict is Verdict.INCONCLUSIVE and attack_has_power(figures) and finds_less(figures)),
        "approved": False,
    }[publish_when]
    # Where a later method may do better, a person is not asked about one that failed.
    asks = publish_when == "approved" and (verdict is not Verdict.FAIL or last_rung)
    if verdict is Verdict.NOT_VALID:
        action, reason = Action.REJECT, _INVALID
    elif publishes:
        action, reason = Action.PUBLISH, _GROUNDS_TO_PUBLISH[verdict]
    elif asks:
        action, reason = Action.AWAIT_APPROVAL, f"{_ASKED}; the verdict is {verdict}."
    elif verdict is Verdict.FAIL:
        action, reason = Action.REJECT, "The audit failed."
    elif publish_when == "passed":
        action, reason = Action.REJECT, "The policy publishes only what passed; the audit is inconclusive."
    else:
        action, reason = Action.REJECT, _UNCHANGED if attack_has_power(figures) else _POWERLESS
    if action is Action.REJECT:
        reason = f"{reason} {_LAST if last_rung else _NEXT}"
    return Decision(action=action, network="unlearned", rule=publish_when, reason=reason)


def _utility_holds(judgement: Judgement, network: Network) -> bool:
    """Whether both utility checks against the original were made and neither is beyond its margin."""
    outcomes = {
        check.measure: check.outcome
        for check in judgement.checks
        if check.network == network and check.against == "original" and check.measure in USEFULNESS
    }
    return len(outcomes) == 2 and Outcome.BEYOND not in outcomes.values()


def _faults(figures: Mapping[str, Any], thresholds: Thresholds, decisive: Sequence[Check]) -> list[str]:
    """Why these figures support no verdict at all; empty if they do."""
    faults = []
    if not figure(figures, "sets", "forget"):
        faults.append("There are no forget rows to measure.")
    if not figure(figures, "holdout", "n"):
        faults.append("There are no held-out rows to compare the forget rows with.")
    elif (distance := figure(figures, "holdout", "class_distance")) is None:
        faults.append("It is not known how the classes of the held-out rows are mixed.")
    elif distance > thresholds.class_distance:
        faults.append(
            f"The classes of the held-out rows are mixed differently from those of the forget rows: distance "
            f"{distance:.2f}, where the policy accepts {thresholds.class_distance:.2f}."
        )
    faults += [
        f"The {name} network gives infinite or undefined outputs on {count(rows, 'row')}."
        for name, rows in (figure(figures, "not_finite") or {}).items()
        if rows
    ]
    if not has_reference(figures) and not look_alike(figures, thresholds):
        faults.append(
            f"The deleted rows and the held-out rows can be told apart without any network (AUC "
            f"{figure(figures, 'blind', 'auc'):.3f}), so without a retrained network to compare with, an "
            f"attack says nothing about memory."
        )
    made = {check.measure for check in decisive}
    faults += [
        f"The audit has no figure for {MEASURES[question.measure]} against {RIVALS[question.against]}."
        for question in questions(figures, thresholds)
        if question.required and question.measure not in made
    ]
    return faults


def _open_reasons(figures: Mapping[str, Any], decisive: Sequence[Check], thresholds: Thresholds) -> list[str]:
    """What stands between these figures and a pass."""
    reasons = []
    if not has_reference(figures):
        reasons.append("There is no network retrained without these rows to compare with, so none can pass.")
    if not attack_has_power(figures):
        reasons.append(
            "The attack does not detect even the original network, so finding nothing proves nothing."
        )
    reasons += [describe(check) for check in decisive if check.outcome is Outcome.UNDECIDED]
    return reasons + _relearned_otherwise(figures, thresholds.relearning_factor)


def _relearned_otherwise(figures: Mapping[str, Any], factor: float) -> list[str]:
    """Whether training brings F back much faster, or much more slowly, than it takes a retrained network."""
    ratio, least = (figure(figures, "relearning", name) for name in ("ain", "ain_at_least"))
    if ratio is not None and not 1 / factor <= ratio <= factor:
        return [_RELEARNED.format(f"{ratio:.2g}", factor)]
    if least is not None and least > factor:
        return [_RELEARNED.format(f"more than {least:.2g}", factor)]
    return []


def _decides_at(figures: Mapping[str, Any], decisive: Sequence[Check]) -> int | None:
    """The largest number of forget rows that an open check needs; None where more rows are no remedy."""
    if not has_reference(figures) or not attack_has_power(figures):
        return None
    needed = [check.rows_to_decide for check in decisive if check.measure not in USEFULNESS]
    return max((n for n in needed if n is not None), default=None)
