"""Every figure of an audit, from the saved outputs of the networks, as JSON-ready data.

Layout of what `audit_figures` returns. Rates, areas and differences are shares; `low` and `high` bound the
95% interval, `low90` and `high90` the 90% one. NETWORK is "original", "unlearned" or, if there is one,
"reference". What could not be measured is None, never 0.

    {"sets": {"forget": n, "retain": n, "holdout": n, "test": n},          rows measured (H: after matching)
     "not_finite": {NETWORK: rows with inf or NaN logits},
     "accuracy": {NETWORK: {"retain" | "forget" | "test":
         {"correct": k, "n": n, "rate", "low", "high"}}},                  Wilson; None without rows
     "membership": {NETWORK: None |                                        margin AUC of F against H; above
         {"auc", "low", "high", "low90", "high90", "p", "reversed_auc"}},  1/2 F looks like training data
     "holdout": {"match": "subject" | "class", "n", "class_distance", "exchangeable": bool},
     "svc_confidence": {NETWORK: None | {"called_non_member": k, "n": n, "rate", "low", "high"},
         "direction": text, "members": n, "non_members": n},
     "differences": {"original" | "reference":                             unlearned minus this one, paired
         {"forget" | "retain" | "test" | "membership":
             None | {"difference", "low90", "high90", "low", "high", "p"}}},
     "reference_utility": None | {"retain" | "test": the same keys},       reference minus original
     "tug_of_war": None | {"absolute", "normalised", "signed", "doing_nothing"},
     "average_gap": None | share}

On a data set that is poisoned, "sets" also has "triggered": n, the test rows with the trigger on them, and
`workers.audit.backdoor` adds, of those test rows that are not of the target class,

    {"backdoor": {NETWORK: {"attack_success" | "floor":                    taken for the target with and
        {"correct": k, "n": n, "rate", "low", "high"}}}}                   without the trigger; Wilson

`membership.p` is two-sided for an AUC of 1/2. `normalised` divides by `doing_nothing`, the original's own
score, and is None where that is 0. `signed` rewards over-forgetting and may exceed 1. `exchangeable`: F and H
are rows of the same people, so that a network that never saw F scores 1/2 but for chance; otherwise that
cannot be known. docs/audit.md says what each figure means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, Literal

import numpy as np

from workers.audit.matching import MATCH_DISTANCE, match_holdout
from workers.audit.membership import margin_scores, svc_draw, svc_non_members
from workers.audit.outputs import Outputs, SetName, Sets
from workers.audit.statistics import (
    Difference,
    auc,
    auc_interval,
    auc_p_value,
    paired_accuracy,
    paired_delong,
    rate,
)
from workers.audit.tug_of_war import Accuracies, average_gap, signed_tug_of_war, tug_of_war

__all__ = ["SVC_DIRECTION", "Outputs", "Sets", "audit_figures"]

SVC_DIRECTION: Final = (
    "share of the forget rows called non-members; neither high nor low is good: the share of a network "
    "retrained without them is the target"
)
_ACCURACY_SETS: Final[tuple[SetName, ...]] = ("retain", "forget", "test")
_SETS: Final[tuple[SetName, ...]] = (*_ACCURACY_SETS, "holdout")
_ATTACK_STREAM = 1  # that of the matching is 0


def audit_figures(
    *,
    original: Sets,
    unlearned: Sets,
    reference: Sets | None = None,
    holdout_match: Literal["subject", "class"],
    seed: int,
    class_distance: float = MATCH_DISTANCE,
) -> dict[str, Any]:
    """The audit's figures in the layout above; the same inputs give the same figures, bit for bit.

    Args:
        original: outputs before unlearning on "retain" (or a sample of it), "forget", "holdout" and "test".
        unlearned: outputs after unlearning, on the same rows in the same order.
        reference: those of a network trained on exactly R, if there is one.
        holdout_match: H holds other rows of the same people, or other rows of the same classes.
        seed: at least 0; decides the draws of the matching and of the confidence attack.
        class_distance: how far the class shares of the matched H may be from those of F, in total
            variation; the policy's threshold, so that the audit keeps all of H that the verdict accepts.

    Raises:
        ValueError: the networks were not measured on the same rows.
    """
    networks: dict[str, Sets] = {"original": original, "unlearned": unlearned}
    if reference is not None:
        networks["reference"] = reference
    _check_same_rows(networks)
    match = match_holdout(original, seed=seed, class_distance=class_distance)
    networks = {name: match.applied_to(sets) for name, sets in networks.items()}
    accuracy = {name: _accuracies(sets) for name, sets in networks.items()}
    svc = _svc_confidence(networks, seed)
    others = {name: sets for name, sets in networks.items() if name != "unlearned"}
    return {
        "sets": {name: len(outputs) for name, outputs in networks["original"].items()},
        "not_finite": {name: _not_finite(sets) for name, sets in networks.items()},
        "accuracy": accuracy,
        "membership": {name: _membership(sets) for name, sets in networks.items()},
        "holdout": {
            "match": holdout_match,
            "n": len(match.rows),
            "class_distance": match.distance,
            "exchangeable": holdout_match == "subject",
        },
        "svc_confidence": svc,
        "differences": {name: _differences(networks["unlearned"], sets) for name, sets in others.items()},
        "reference_utility": _accuracy_differences(reference, original, ("retain", "test"))
        if reference is not None
        else None,
        **_summaries(accuracy, svc),
    }


def _check_same_rows(networks: Mapping[str, Sets]) -> None:
    for name, sets in networks.items():
        for set_name in _SETS:
            if not np.array_equal(sets[set_name].labels, networks["original"][set_name].labels):
                raise ValueError(f"{name} and original were not measured on the same {set_name} rows")


def _not_finite(sets: Sets) -> int:
    return sum(int((~outputs.finite).sum()) for outputs in sets.values())


def _accuracies(sets: Sets) -> dict[str, Any]:
    counts = {name: (int(sets[name].correct.sum()), len(sets[name])) for name in _ACCURACY_SETS}
    return {name: {"correct": k, "n": n, **rate(k, n)} for name, (k, n) in counts.items()}


def _membership(sets: Sets) -> dict[str, float] | None:
    scores = margin_scores(sets)
    if scores is None:
        return None
    value, ninety_five, ninety = auc(scores), auc_interval(scores), auc_interval(scores, 0.1)
    return {
        "auc": value,
        "low": ninety_five.low,
        "high": ninety_five.high,
        "low90": ninety.low,
        "high90": ninety.high,
        "p": auc_p_value(scores),
        "reversed_auc": 1 - value,
    }


def _svc_confidence(networks: Mapping[str, Sets], seed: int) -> dict[str, Any]:
    retain, test = (len(networks["original"][name]) for name in ("retain", "test"))
    members, non_members = svc_draw(retain, test, np.random.default_rng((seed, _ATTACK_STREAM)))

    def called(sets: Sets) -> dict[str, Any] | None:
        known = sets["retain"].take(members), sets["test"].take(non_members)
        if not all(len(part) and part.finite.all() for part in (*known, sets["forget"])):
            return None
        verdicts = svc_non_members(members=known[0], non_members=known[1], forget=sets["forget"])
        k, n = int(verdicts.sum()), len(verdicts)
        return {"called_non_member": k, "n": n, **rate(k, n)}

    return {
        **{name: called(sets) for name, sets in networks.items()},
        "direction": SVC_DIRECTION,
        "members": len(members),
        "non_members": len(non_members),
    }


def _difference(difference: Difference) -> dict[str, float]:
    return {name: value for name, value in asdict(difference).items() if name != "standard_error"}


def _accuracy_differences(first: Sets, second: Sets, names: tuple[SetName, ...]) -> dict[str, Any]:
    return {
        name: _difference(paired_accuracy(first[name].correct, second[name].correct))
        if len(first[name])
        else None
        for name in names
    }


def _differences(unlearned: Sets, other: Sets) -> dict[str, Any]:
    first, second = margin_scores(unlearned), margin_scores(other)
    membership = _difference(paired_delong(first, second)) if first and second else None
    return {**_accuracy_differences(unlearned, other, _ACCURACY_SETS), "membership": membership}


def _summaries(accuracy: Mapping[str, Any], svc: Mapping[str, Any]) -> dict[str, Any]:
    """ToW and Avg. Gap, where there is a reference and every rate was measured."""
    rates = {name: {key: value["rate"] for key, value in of.items()} for name, of in accuracy.items()}
    if "reference" not in rates or None in rates["reference"].values():
        return {"tug_of_war": None, "average_gap": None}
    networks = {
        name: Accuracies(**of, called_non_member=svc[name] and svc[name]["rate"])
        for name, of in rates.items()
    }
    reference, unlearned = networks["reference"], networks["unlearned"]
    absolute, nothing = tug_of_war(unlearned, reference), tug_of_war(networks["original"], reference)
    return {
        "tug_of_war": {
            "absolute": absolute,
            "normalised": absolute / nothing if nothing > 0 else None,
            "signed": signed_tug_of_war(unlearned, reference),
            "doing_nothing": nothing,
        },
        "average_gap": average_gap(unlearned, reference),
    }
