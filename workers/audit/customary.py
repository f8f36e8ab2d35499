"""The attacks that papers report because papers report them. No verdict rests on any of these figures.

Fast audit, issue 6: "the customary SVC (five features, correct modified entropy, threshold form) and
loss-regression figures". Each attack learns what members (R) look like beside rows never trained on (T), and
its figure is the share of F that it calls non-members: neither high nor low is good, the share of a network
retrained without F is the target. Published code fits on T and tests nothing, so the share has no known
error; here half of the rows are kept back, and `attacker` says how often the attack is right on those.

    {"customary": {NETWORK: None |                                        None: a set is empty or not finite
        {"svc": {FEATURE: SHARE}, "threshold": {FEATURE: SHARE},          "threshold" without "probabilities"
         "loss_regression": None | {"accuracy", "deviation", "n"}}}}

    SHARE = {"called_non_member": k, "n": n, "rate", "low", "high",
             "attacker": {"correct": k, "n": n, "rate", "low", "high"}}   Wilson; guessing has a rate of 1/2

Sources: Jia et al. 2023 (SVC; OPTML-Group/Unlearn-Sparse), Song & Mittal 2021 (thresholds), the NeurIPS 2023
unlearning challenge's starting kit (loss regression).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score

from workers.audit.features import FEATURES, Feature, losses
from workers.audit.membership import SVC_ROWS, fit_svc
from workers.audit.outputs import BoolArray, FloatArray, IntArray, Outputs, Sets
from workers.audit.statistics import Scores, rate

# Members score high: both entropies are small where a network is sure.
_SIGNS: Final[Mapping[str, float]] = {
    "correctness": 1.0,
    "confidence": 1.0,
    "entropy": -1.0,
    "modified_entropy": -1.0,
}

Attack = Callable[[FloatArray], BoolArray]  # features -> which rows it calls members


@dataclass(frozen=True)
class Halves:
    """Row numbers of R and of T: those an attack learns from, then those it is tested on, all as many."""

    members: IntArray
    non_members: IntArray
    tested_members: IntArray
    tested_non_members: IntArray

    def of(self, sets: Sets) -> tuple[Outputs, Outputs, Outputs, Outputs]:
        """One network's outputs on them, in the order above."""
        retain, test = sets["retain"], sets["test"]
        return (
            retain.take(self.members),
            test.take(self.non_members),
            retain.take(self.tested_members),
            test.take(self.tested_non_members),
        )


def draw_halves(retain: IntArray, test: IntArray, rng: np.random.Generator) -> Halves:
    """The largest halves in which every class is as frequent among members as among non-members.

    Otherwise an attack could tell R from T by their classes. At most `SVC_ROWS` rows of R and of T are used;
    a class of which R or T has fewer than two is left out.

    Args:
        retain: labels of R, int64.
        test: labels of T, int64.
    """
    classes = int(max(retain.max(initial=-1), test.max(initial=-1))) + 1
    pairs = np.minimum(*(np.bincount(labels, minlength=classes) // 2 for labels in (retain, test)))
    counts = rng.multivariate_hypergeometric(pairs, min(int(pairs.sum()), SVC_ROWS // 2))
    members, tested_members = _halves(retain, counts, rng)
    non_members, tested_non_members = _halves(test, counts, rng)
    return Halves(members, non_members, tested_members, tested_non_members)


def _halves(labels: IntArray, counts: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """So many rows of each class, twice, without a row in both."""
    empty = np.empty(0, dtype=np.int64)
    drawn = [
        rng.choice(np.flatnonzero(labels == label), 2 * counts[label], replace=False)
        for label in np.flatnonzero(counts)
    ]
    first = [rows[: len(rows) // 2] for rows in drawn]
    second = [rows[len(rows) // 2 :] for rows in drawn]
    return np.sort(np.concatenate([empty, *first])), np.sort(np.concatenate([empty, *second]))


def customary_figures(sets: Sets, halves: Halves, *, seed: int) -> dict[str, Any] | None:
    """All of them for one network, in the layout above. The same halves and seed must serve all networks."""
    parts = (*halves.of(sets), sets["forget"])
    if not all(len(part) and part.finite.all() for part in parts):
        return None
    known, forget = parts[:4], sets["forget"]
    return {
        "svc": {name: _share(_svc, of, known, forget) for name, of in FEATURES.items()},
        "threshold": {
            name: _share(_Threshold(sign), FEATURES[name], known, forget) for name, sign in _SIGNS.items()
        },
        "loss_regression": loss_regression(
            losses(forget), losses(sets["test"]), rng=np.random.default_rng(seed)
        )
        if sets["test"].finite.all()
        else None,
    }


def best_threshold(scores: Scores) -> float:
    """The t for which `member if score >= t` has the best balanced accuracy; the highest of equals.

    It lies half-way to the next lower score. Sorted counting, O((m + n) log(m + n)); reference code tries
    every score on every score. Infinite where calling nobody a member is best, as where all scores are equal.
    """
    m, n = (len(part) for part in scores)
    levels, level_of = np.unique(np.concatenate(scores), return_inverse=True)
    # TPR - FPR at each level, times m n so that equals compare as equal; from the highest level down.
    advantages = np.bincount(level_of, weights=np.repeat([n, -m], [m, n]))[::-1].cumsum()
    if advantages.max() <= 0:
        return float("inf")
    level_and_next = levels[::-1][advantages.argmax() :][:2]
    middle = level_and_next.mean()
    return float(middle if middle > level_and_next[-1] else level_and_next[0])


def loss_regression(
    forget: FloatArray, unseen: FloatArray, *, rng: np.random.Generator
) -> dict[str, Any] | None:
    """Mean accuracy, over ten stratified shuffles, of telling F from unseen rows by a regression on the loss.

    The starting kit's quick look: scikit-learn's LogisticRegression and StratifiedShuffleSplit with their
    defaults, on as many rows of either kind: a multiple of ten, as otherwise the tenth it is tested on has
    more of the kind that the rest has less of, and guessing scores below one half. The tenths overlap, so
    that `deviation`, the standard deviation over the shuffles, is no standard error. The figure cannot beat
    the loss's AUC.

    Args:
        forget: losses of F, finite float64 [m].
        unseen: losses of rows never trained on, finite float64 [n].

    Returns:
        {"accuracy", "deviation", "n": rows of either kind}; None with fewer than ten.
    """
    size = min(len(forget), len(unseen)) // 10 * 10
    if size == 0:
        return None
    chosen = [rng.choice(losses, size, replace=False) for losses in (forget, unseen)]
    split = StratifiedShuffleSplit(n_splits=10, random_state=int(rng.integers(2**31)))
    accuracies = cross_val_score(
        LogisticRegression(), np.concatenate(chosen)[:, None], np.repeat([0, 1], size), cv=split
    )
    return {"accuracy": float(accuracies.mean()), "deviation": float(accuracies.std()), "n": size}


def _svc(members: FloatArray, non_members: FloatArray) -> Attack:
    fitted = fit_svc(members=members, non_members=non_members)
    return lambda features: np.equal(fitted.predict(features), 1)


@dataclass(frozen=True)
class _Threshold:
    """The one-feature attack that an SVC amounts to, at a fraction of the cost."""

    sign: float

    def __call__(self, members: FloatArray, non_members: FloatArray) -> Attack:
        threshold = best_threshold(Scores(self.sign * members[:, 0], self.sign * non_members[:, 0]))
        return lambda features: self.sign * features[:, 0] >= threshold


def _share(
    fit: Callable[[FloatArray, FloatArray], Attack],
    feature: Feature,
    known: tuple[Outputs, ...],
    forget: Outputs,
) -> dict[str, Any]:
    """The share of F that the fitted attack calls non-members, and how often it is right on other rows."""
    members, non_members, *tested, of_forget = (_columns(feature(part)) for part in (*known, forget))
    attack = fit(members, non_members)
    called, n = int((~attack(of_forget)).sum()), len(of_forget)
    right = int(attack(tested[0]).sum() + (~attack(tested[1])).sum())
    total = len(tested[0]) + len(tested[1])
    return {
        "called_non_member": called,
        "n": n,
        **rate(called, n),
        "attacker": {"correct": right, "n": total, **rate(right, total)},
    }


def _columns(feature: FloatArray) -> FloatArray:
    return feature.reshape(len(feature), -1)
