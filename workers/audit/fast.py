"""The fast audit beyond accuracies and the attack: what an attack finds elsewhere, and what it is worth.

Layout, besides what each function's own module says:

    {"accuracy_by_class": {NETWORK: {"retain" | "forget" | "test": [...]}},  `by_class`
     "customary": {NETWORK: None | {...}},                                `customary`
     "retained": None | {...}, "blind": None | {...},                     `controls`
     "probe": {NETWORK: None | {...}, "excess": None | {...}},             `probing`
     "noisy": {NETWORK: None | AUC},                                      the attack on F and H with noise
     "rounded": {"int8" | "int4": None | {                                weights rounded to so many bits
         NETWORK: {"forget" | "holdout": {"correct", "n", "rate", "low", "high"}},
         "excess": None | DIFFERENCE}}}                                   None without a reference

**noisy** sees through a table of answers to known images. **rounded** sees a change so small that storing the
weights in fewer bits undoes it: `excess` is by how much more the unlearned network's accuracy on F exceeds
that on H than the references' does, so that what rounding breaks everywhere cancels out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from workers.audit.attack import auc_figures
from workers.audit.by_class import accuracy_by_class
from workers.audit.controls import blind_figures, retained_figures
from workers.audit.customary import customary_figures, draw_halves
from workers.audit.membership import margin_scores
from workers.audit.outputs import BoolArray, FloatArray, IntArray, Networks, SetName, Sets, Variant, variant
from workers.audit.probing import probe_figures
from workers.audit.statistics import excess_of_gaps, rate

_BY_CLASS: Final[tuple[SetName, ...]] = ("retain", "forget", "test")
_ROUNDED: Final[tuple[Variant, ...]] = ("int8", "int4")
# One seed serves several independent draws; 0 and 1 are those of figures.py.
_RETAINED, _BLIND, _HALVES = 2, 3, 4


@dataclass(frozen=True)
class Looks:
    """What can be seen of the rows of F and of H without any network: float64 [m, d] and [n, d]."""

    forget: FloatArray
    holdout: FloatArray

    def take(self, rows: IntArray) -> Looks:
        """Those of F and of these rows of H."""
        return Looks(self.forget, self.holdout[rows])


def fast_figures(networks: Networks, *, looks: Looks | None, seed: int) -> dict[str, Any]:
    """All of them, in the layout above; H as already matched. `looks`: if the blind attack is wanted."""

    def rng(stream: int) -> np.random.Generator:
        return np.random.default_rng((seed, stream))

    named, before = networks.named, networks.original
    halves = draw_halves(before["retain"].labels, before["test"].labels, rng(_HALVES))
    return {
        "accuracy_by_class": {
            name: {part: accuracy_by_class(sets[part]) for part in _BY_CLASS} for name, sets in named.items()
        },
        "customary": {name: customary_figures(sets, halves, seed=seed) for name, sets in named.items()},
        "retained": retained_figures(before, networks.unlearned, rng=rng(_RETAINED)),
        "blind": looks and blind_figures(looks.forget, looks.holdout, rng=rng(_BLIND)),
        "probe": probe_figures(networks, seed=seed),
        "noisy": {name: _noisy(sets) for name, sets in named.items()},
        "rounded": {name: rounded_figures(networks, name) for name in _ROUNDED},
    }


def _noisy(sets: Sets) -> dict[str, float] | None:
    rows = variant(sets, "noisy")
    scores = None if rows is None else margin_scores(rows)
    return None if scores is None else auc_figures(scores)


def rounded_figures(networks: Networks, name: Variant) -> dict[str, Any] | None:
    """Accuracies of the networks with rounded weights, and the unlearned one's excess on F."""
    if not all(_measured(sets, name) for sets in (*networks.named.values(), *networks.references)):
        return None
    rounded = networks.each(lambda sets: variant(sets, name) or {})
    return {
        **{of: _accuracies(sets) for of, sets in rounded.named.items()},
        "excess": _excess(rounded) if rounded.references else None,
    }


def _measured(sets: Sets, name: Variant) -> bool:
    found = variant(sets, name)
    return found is not None and all(len(outputs) for outputs in found.values())


def _accuracies(sets: Sets) -> dict[str, Any]:
    counts = {name: (int(outputs.correct.sum()), len(outputs)) for name, outputs in sets.items()}
    return {name: {"correct": k, "n": n, **rate(k, n)} for name, (k, n) in counts.items()}


def _excess(rounded: Networks) -> dict[str, float]:
    def of_references(place: SetName) -> BoolArray:
        return np.array([sets[place].correct for sets in rounded.references])

    own = rounded.unlearned["forget"].correct, rounded.unlearned["holdout"].correct
    return excess_of_gaps(own, (of_references("forget"), of_references("holdout"))).figures
