"""The linear-probe gap: what the features still know of F, whatever the last layer makes of it.

A network that was unlearned by its last layer alone, or that answers for F from a table, passes the attacks
on its outputs. So a new last layer is fitted on R: a logistic regression on the standardised penultimate
features of at most 2,000 rows. If it classifies F better than H, the features still treat F as something
learnt. Issue 6; Jeon et al. 2024 ("An information theoretic evaluation metric for strong unlearning") find
the same layer by layer.

    {"probe": {NETWORK: None |                                            None: no features, or not finite, or
        {"forget" | "holdout": {"correct", "n", "rate", "low", "high"},   no row of R, F or H; Wilson
         "gap": accuracy on F - accuracy on H,
         "low", "high", "low90", "high90",                                Newcombe
         "p"},                                                            two-sided, Fisher's exact
     "excess": None |                                                     None: no reference, or one network's
        {"difference", "low", "high", "low90", "high90", "p"}}}           probe is missing

**gap**: 0 is what a retrained network shows on rows drawn alike, and only on those: H may hold harder ones.
**excess**: the unlearned network's gap less the mean gap of the references, row by row, so that hard rows
cancel out (`workers.audit.statistics.excess_of_gaps`). It speaks of these references; what others would have
shown is not in its interval.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from workers.audit.outputs import FloatArray, IntArray, Networks, Outputs, SetName, Sets
from workers.audit.statistics import HitPair, Interval, excess_of_gaps, rate, wilson

MOST_LEARNED: Final = 2_000  # rows of R
_MOST_STEPS = 200  # of L-BFGS: where classes can be separated it would go on for very long, to little effect
_SETS: Final[tuple[SetName, ...]] = ("retain", "forget", "holdout")


def probe_figures(networks: Networks, *, seed: int) -> dict[str, Any]:
    """All of them, in the layout above; H as already matched. Every network learns from the same rows of R.

    `seed` decides which, if there are more than 2,000. Takes about as many fits as there are networks.
    """
    count = len(networks.original["retain"])
    rows = np.random.default_rng(seed).choice(count, min(count, MOST_LEARNED), replace=False)
    named = {name: probe_hits(sets, rows) for name, sets in networks.named.items()}
    others = [named["reference"]] if networks.references else []
    others += [probe_hits(sets, rows) for sets in networks.references[1:]]
    return {
        **{name: None if hits is None else gap_figures(hits) for name, hits in named.items()},
        "excess": _excess(named["unlearned"], others),
    }


def probe_hits(sets: Sets, rows: IntArray) -> HitPair | None:
    """Which rows of F and of H a logistic regression classifies as labelled, fitted on these rows of R.

    It is deterministic. A label that none of these rows has is never given, so that a class that was
    forgotten whole counts as missed.

    Returns:
        None where a set has no row or no features, or where a feature is not finite.
    """
    retain, forget, holdout = ({**sets, "retain": sets["retain"].take(rows)}[name] for name in _SETS)
    learned, told, asked = (_usable(part) for part in (retain, forget, holdout))
    if learned is None or told is None or asked is None:
        return None
    if len(np.unique(retain.labels)) == 1:  # nothing to fit: every row is called that
        return forget.labels == retain.labels[0], holdout.labels == retain.labels[0]
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=_MOST_STEPS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(learned, retain.labels)
    return probe.predict(told) == forget.labels, probe.predict(asked) == holdout.labels


def gap_figures(hits: HitPair) -> dict[str, Any]:
    """One network's figures in the layout above, of hits on F and on H, bool [m] and [n], m, n at least 1."""
    (k, m), (j, n) = ((int(part.sum()), len(part)) for part in hits)
    ninety_five, ninety = (_newcombe((k, m), (j, n), level) for level in (0.05, 0.1))
    return {
        "forget": {"correct": k, "n": m, **rate(k, m)},
        "holdout": {"correct": j, "n": n, **rate(j, n)},
        "gap": k / m - j / n,
        "low": ninety_five.low,
        "high": ninety_five.high,
        "low90": ninety.low,
        "high90": ninety.high,
        "p": float(stats.fisher_exact([[k, m - k], [j, n - j]]).pvalue),
    }


def _newcombe(first: tuple[int, int], second: tuple[int, int], level: float) -> Interval:
    """Of a difference of two independent rates, from their Wilson intervals (Newcombe 1998, method 10)."""
    p, q = (correct / n for correct, n in (first, second))
    of_p, of_q = wilson(*first, level), wilson(*second, level)
    return Interval(
        p - q - float(np.hypot(p - of_p.low, of_q.high - q)),
        p - q + float(np.hypot(of_p.high - p, q - of_q.low)),
    )


def _usable(outputs: Outputs) -> FloatArray | None:
    features = outputs.features
    return features if features is not None and len(features) and np.isfinite(features).all() else None


def _excess(unlearned: HitPair | None, references: list[HitPair | None]) -> dict[str, float] | None:
    known = [hits for hits in references if hits is not None]
    if unlearned is None or not known or len(known) < len(references):
        return None
    forget, holdout = (np.array(part) for part in zip(*known, strict=True))
    return excess_of_gaps(unlearned, (forget, holdout)).figures
