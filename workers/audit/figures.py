"""Every figure of an audit, from the saved outputs of the networks, as JSON-ready data.

Layout of what `audit_figures` returns. Rates, areas and differences are shares; `low` and `high` bound the
95% interval, `low90` and `high90` the 90% one. NETWORK is "original", "unlearned" or, if there is one,
"reference". What could not be measured is None, never 0.

    {"sets": {"forget": n, "retain": n, "holdout": n, "test": n},          rows measured (H: after matching)
     "not_finite": {NETWORK: rows with inf or NaN logits},
     "accuracy": {NETWORK: {"retain" | "forget" | "test":
         {"correct": k, "n": n, "rate", "low", "high"}}},                  Wilson; None without rows
     "membership": {NETWORK: None | ATTACK},                               margin AUC of F against H; above
                                                                           1/2 F looks like training data
     "holdout": {"match": "subject" | "class", "n", "class_distance", "exchangeable": bool},
     "svc_confidence": {NETWORK: None | {"called_non_member": k, "n": n, "rate", "low", "high"},
         "direction": text, "members": n, "non_members": n},
     "differences": {"original" | "reference":                             unlearned minus this one, paired
         {"forget" | "retain" | "test" | "membership":
             None | {"difference", "low90", "high90", "low", "high", "p"}}},
     "reference_utility": None | {"retain" | "test": the same keys},       reference minus original
     "tug_of_war": None | {"absolute", "normalised", "signed", "doing_nothing"},
     "average_gap": None | share}

ATTACK is described in `workers.audit.attack`. Besides there are the figures of `workers.audit.fast` and,
about all references together, of `workers.audit.deep`; "reference" is the first of them.

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
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from workers.audit.attack import attack_figures
from workers.audit.deep import deep_figures, over_all
from workers.audit.fast import Looks, fast_figures
from workers.audit.matching import MATCH_DISTANCE, match_holdout
from workers.audit.membership import margin_scores, svc_draw, svc_non_members
from workers.audit.outputs import IntArray, Networks, Outputs, SetName, Sets
from workers.audit.statistics import paired_accuracy, paired_delong, rate
from workers.audit.tug_of_war import Accuracies, average_gap, signed_tug_of_war, tug_of_war

__all__ = ["SVC_DIRECTION", "Looks", "Networks", "Outputs", "Sets", "audit_figures"]

SVC_DIRECTION: Final = (
    "share of the forget rows called non-members; neither high nor low is good: the share of a network "
    "retrained without them is the target"
)
_ACCURACY_SETS: Final[tuple[SetName, ...]] = ("retain", "forget", "test")
_SETS: Final[tuple[SetName, ...]] = (*_ACCURACY_SETS, "holdout")
_COUNTED: Final[tuple[SetName, ...]] = (*_SETS, "triggered")
_ATTACK_STREAM, _SHUFFLES = 1, 8  # that of the matching is 0; 2 to 7 are those of fast.py and deep.py


def audit_figures(
    networks: Networks,
    *,
    holdout_match: Literal["subject", "class"],
    seed: int,
    class_distance: float = MATCH_DISTANCE,
    looks: Looks | None = None,
) -> dict[str, Any]:
    """The audit's figures in the layout above; the same inputs give the same figures, bit for bit.

    Args:
        holdout_match: H holds other rows of the same people, or other rows of the same classes.
        seed: at least 0; decides the draws of the matching and of the attacks.
        class_distance: how far the class shares of the matched H may be from those of F, in total
            variation; the policy's threshold, so that the audit keeps all of H that the verdict accepts.
        looks: what can be seen of F and H without a network, for the attack that asks none.

    Raises:
        ValueError: the networks were not measured on the same rows.
    """
    _check_same_rows(networks)
    match = match_holdout(networks.original, seed=seed, class_distance=class_distance)
    networks = networks.each(match.applied_to)
    named, references = networks.named, networks.references
    draw = _SvcDraw.of(networks, seed)
    accuracy = {name: _accuracies(sets) for name, sets in named.items()}
    svc = {name: draw.called(sets) for name, sets in named.items()}
    rated = {name: _rated(accuracy[name], svc[name]) for name in named}
    further = [_rated(_accuracies(sets), draw.called(sets)) for sets in references[1:]]
    others = {name: sets for name, sets in named.items() if name != "unlearned"}
    return {
        "sets": {name: len(networks.original[name]) for name in _COUNTED if name in networks.original},
        "not_finite": {name: _not_finite(sets) for name, sets in named.items()},
        "accuracy": accuracy,
        "membership": {name: _membership(sets, seed) for name, sets in named.items()},
        "holdout": {
            "match": holdout_match,
            "n": len(match.rows),
            "class_distance": match.distance,
            "exchangeable": holdout_match == "subject",
        },
        "svc_confidence": {
            **svc,
            "direction": SVC_DIRECTION,
            "members": len(draw.members),
            "non_members": len(draw.non_members),
        },
        "differences": {name: _differences(networks.unlearned, sets) for name, sets in others.items()},
        "reference_utility": _accuracy_differences(references[0], networks.original, ("retain", "test"))
        if references
        else None,
        **_summaries(rated),
        **fast_figures(networks, looks=looks and looks.take(match.rows), seed=seed),
        **deep_figures(networks, seed=seed),
        **over_all(rated, further),
    }


def _check_same_rows(networks: Networks) -> None:
    original = networks.original
    for name, sets in (*networks.named.items(), *(("a reference", sets) for sets in networks.references)):
        for set_name, outputs in original.items():
            if set_name not in sets or not np.array_equal(sets[set_name].labels, outputs.labels):
                raise ValueError(f"{name} and original were not measured on the same {set_name} rows")


def _not_finite(sets: Sets) -> int:
    return sum(int((~sets[name].finite).sum()) for name in _COUNTED if name in sets)


def _accuracies(sets: Sets) -> dict[str, Any]:
    counts = {name: (int(sets[name].correct.sum()), len(sets[name])) for name in _ACCURACY_SETS}
    return {name: {"correct": k, "n": n, **rate(k, n)} for name, (k, n) in counts.items()}


def _membership(sets: Sets, seed: int) -> dict[str, Any] | None:
    scores = margin_scores(sets)
    return None if scores is None else attack_figures(scores, rng=np.random.default_rng((seed, _SHUFFLES)))


@dataclass(frozen=True)
class _SvcDraw:
    """The rows of R and of T that the confidence attack learns from, the same for every network."""

    members: IntArray
    non_members: IntArray

    @classmethod
    def of(cls, networks: Networks, seed: int) -> _SvcDraw:
        retain, test = (len(networks.original[name]) for name in ("retain", "test"))
        return cls(*svc_draw(retain, test, np.random.default_rng((seed, _ATTACK_STREAM))))

    def called(self, sets: Sets) -> dict[str, Any] | None:
        known = sets["retain"].take(self.members), sets["test"].take(self.non_members)
        if not all(len(part) and part.finite.all() for part in (*known, sets["forget"])):
            return None
        verdicts = svc_non_members(members=known[0], non_members=known[1], forget=sets["forget"])
        k, n = int(verdicts.sum()), len(verdicts)
        return {"called_non_member": k, "n": n, **rate(k, n)}


def _accuracy_differences(first: Sets, second: Sets, names: tuple[SetName, ...]) -> dict[str, Any]:
    return {
        name: paired_accuracy(first[name].correct, second[name].correct).figures if len(first[name]) else None
        for name in names
    }


def _differences(unlearned: Sets, other: Sets) -> dict[str, Any]:
    first, second = margin_scores(unlearned), margin_scores(other)
    membership = paired_delong(first, second).figures if first and second else None
    return {**_accuracy_differences(unlearned, other, _ACCURACY_SETS), "membership": membership}


def _rated(accuracy: Mapping[str, Any], svc: Mapping[str, Any] | None) -> Accuracies | None:
    """One network's rates; None where one was not measured."""
    rates = {part: of["rate"] for part, of in accuracy.items()}
    if None in rates.values():
        return None
    return Accuracies(**rates, called_non_member=None if svc is None else svc["rate"])


def _summaries(rated: Mapping[str, Accuracies | None]) -> dict[str, Any]:
    """ToW and Avg. Gap, where there is a reference and every rate was measured."""
    unlearned, original, reference = (rated.get(name) for name in ("unlearned", "original", "reference"))
    if reference is None or unlearned is None or original is None:
        return {"tug_of_war": None, "average_gap": None}
    absolute, nothing = tug_of_war(unlearned, reference), tug_of_war(original, reference)
    return {
        "tug_of_war": {
            "absolute": absolute,
            "normalised": absolute / nothing if nothing > 0 else None,
            "signed": signed_tug_of_war(unlearned, reference),
            "doing_nothing": nothing,
        },
        "average_gap": average_gap(unlearned, reference),
    }
