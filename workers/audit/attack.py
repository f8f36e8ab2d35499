"""What an attack's scores tell of F against H: the area in both directions, tests, and the rate of sure hits.

Fast audit, issue 6: "margin AUC in both directions with DeLong, permutation p, KS; TPR at FPR only where n
allows". The scores are phi of F and of H (`workers.audit.membership.margin_scores`); the deep audit gives
those of its calibrated attacks. ATTACK is what `attack_figures` returns:

    {"auc", "low", "high", "low90", "high90", "p", "reversed_auc",        p: two-sided, Mann-Whitney
     "permutation_p",                                                     two-sided, of the same area
     "ks": {"statistic", "p"},                                            two-sided Kolmogorov-Smirnov
     "tpr_at_fpr": {"members" | "strangers": {"0.001" | "0.01" | "0.05":  None: H is too small to tell
         None | {"detected": k, "n": n, "rate", "low", "high",            rows of F; Wilson
                 "false_alarms": k, "unseen": n}}}}                       rows of H

"members" are rows that score high, as if remembered; "strangers" rows that score low, as after forgetting too
much. The three tests look at the same scores, and only one of them may enter a correction for many tests.
"""

from __future__ import annotations

import math
import warnings
from itertools import combinations
from typing import Any, Final

import numpy as np
from scipy import stats

from workers.audit.statistics import Scores, auc, auc_interval, auc_p_value, rate

FALSE_POSITIVE_RATES: Final = (0.001, 0.01, 0.05)
_ROUNDING = 1e-9


def attack_figures(scores: Scores, *, rng: np.random.Generator) -> dict[str, Any]:
    """All of them, in the layout above; the scores must be finite. One row on either side is enough."""
    return {
        **auc_figures(scores),
        "permutation_p": permutation_p(scores, rng=rng),
        "ks": _kolmogorov_smirnov(scores),
        "tpr_at_fpr": {
            "members": _at_each_rate(scores),
            "strangers": _at_each_rate(Scores(-scores.positives, -scores.negatives)),
        },
    }


def auc_figures(scores: Scores) -> dict[str, float]:
    """{"auc", "low", "high", "low90", "high90", "p", "reversed_auc"}; intervals as in `statistics`."""
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


def permutation_p(scores: Scores, *, rng: np.random.Generator, resamples: int = 1_999) -> float:
    """Two-sided p for `F and H are exchangeable`: how often shuffled scores give an AUC as far from 1/2.

    Every split is counted where there are no more than `resamples` of them. Otherwise so many are drawn and
    the observed one is counted among them (Phipson & Smyth 2010), so that p is never 0 and never below
    1 / (resamples + 1). scipy.stats.permutation_test does the same but refuses a single row.
    """
    small, large = sorted(scores, key=len)
    m, total = len(small), len(small) + len(large)
    # Whole numbers, so that splits as far from 1/2 as the observed one compare as equal.
    ranks = np.rint(2 * stats.rankdata(np.concatenate([small, large])))
    counted = math.comb(total, m) <= resamples
    splits = (
        combinations(ranks, m) if counted else (rng.choice(ranks, m, replace=False) for _ in range(resamples))
    )
    distances = np.abs(np.array([np.sum(split) for split in splits]) - m * (total + 1))
    hits = int((distances >= abs(ranks[:m].sum() - m * (total + 1))).sum())
    return hits / len(distances) if counted else (hits + 1) / (resamples + 1)


def tpr_at_fpr(scores: Scores, false_positive_rate: float) -> dict[str, Any] | None:
    """The largest share of F above a threshold that at most this share of H is above.

    Published code takes the threshold whose rate is nearest, which may well be above. With fewer rows of H
    than show, at 95%, a rate this small by no false alarm at all (59 for 5%, 299 for 1%, 2,995 for .1%), the
    threshold means nothing and there is no figure. The threshold is chosen on the same H, so the interval is
    that of the share of F alone.

    Args:
        false_positive_rate: in (0, 1).

    Returns:
        {"detected", "n", "rate", "low", "high", "false_alarms", "unseen"}, or None.
    """
    unseen = len(scores.negatives)
    if unseen < math.log(0.05) / math.log1p(-false_positive_rate):
        return None
    allowed = math.floor(false_positive_rate * unseen + _ROUNDING)
    threshold = np.sort(scores.negatives)[::-1][allowed]
    detected, false_alarms = (int((part > threshold).sum()) for part in scores)
    n = len(scores.positives)
    return {
        "detected": detected,
        "n": n,
        **rate(detected, n),
        "false_alarms": false_alarms,
        "unseen": unseen,
    }


def _kolmogorov_smirnov(scores: Scores) -> dict[str, float]:
    with warnings.catch_warnings():
        # Where an exact p comes to 1 and a rounding error, scipy warns and takes the asymptotic one.
        warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
        statistic, p = stats.ks_2samp(*scores)
    return {"statistic": float(statistic), "p": float(p)}


def _at_each_rate(scores: Scores) -> dict[str, Any]:
    return {str(share): tpr_at_fpr(scores, share) for share in FALSE_POSITIVE_RATES}
