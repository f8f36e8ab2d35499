"""Membership attacks: can the rows to forget be told from rows the network never saw?"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.svm import SVC

from workers.audit.outputs import BoolArray, FloatArray, IntArray, Outputs, Sets
from workers.audit.statistics import Scores

SVC_ROWS = 2_000  # per side; the fit is quadratic


def margins(outputs: Outputs) -> FloatArray:
    """phi = z_y - logsumexp(z_k, k != y) = log(p_y / (1 - p_y)): float64 [n], from finite logits.

    The logit-scaled confidence of Carlini et al. 2022 (section V), taken from logits because probabilities
    saturate: a network that has learned a row by heart gives it a large phi.
    """
    rows = np.arange(len(outputs))
    others = outputs.logits.copy()
    others[rows, outputs.labels] = -np.inf
    phi: FloatArray = outputs.logits[rows, outputs.labels] - logsumexp(others, axis=1)
    return phi


def margin_scores(sets: Sets) -> Scores | None:
    """phi of F and of H; None where a set is empty or the network's outputs are not finite."""
    pair = sets["forget"], sets["holdout"]
    if not all(len(outputs) and outputs.finite.all() for outputs in pair):
        return None
    return Scores(*(margins(outputs) for outputs in pair))


def svc_draw(retain: int, test: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Row numbers of R (members) and T (non-members), equally many, for `svc_non_members`."""
    size = min(retain, test, SVC_ROWS)
    return np.sort(rng.choice(retain, size, replace=False)), np.sort(rng.choice(test, size, replace=False))


def svc_non_members(*, members: Outputs, non_members: Outputs, forget: Outputs) -> BoolArray:
    """The confidence attack of Jia et al. 2023 (`MIA-efficacy`): which rows of `forget` it calls non-members.

    A support vector classifier (RBF kernel, C = 3, gamma "auto", one feature p_y, unscaled) learns R against
    T under the audited network. The share of rows called non-members is not better the higher it is: the
    retrained network's share is the target. Fitted on T and never tested on it, so its error is unknown.

    Returns:
        bool [forget rows].
    """
    confidence = np.concatenate([_confidence(members), _confidence(non_members)])
    is_member = np.repeat([1, 0], [len(members), len(non_members)])
    # The seed decides nothing here, but without one scikit-learn draws from the global generator.
    attack = SVC(C=3, kernel="rbf", gamma="auto", random_state=0).fit(confidence[:, None], is_member)
    called: BoolArray = attack.predict(_confidence(forget)[:, None]) == 0
    return called


def _confidence(outputs: Outputs) -> FloatArray:
    confidence: FloatArray = softmax(outputs.logits, axis=1)[np.arange(len(outputs)), outputs.labels]
    return confidence
