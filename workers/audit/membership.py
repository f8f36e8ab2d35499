"""Membership attacks: can the rows to forget be told from rows the network never saw?"""

from __future__ import annotations

import numpy as np
from sklearn.svm import SVC

from workers.audit.features import confidence, margins
from workers.audit.outputs import BoolArray, FloatArray, IntArray, Outputs, Sets
from workers.audit.statistics import Scores

SVC_ROWS = 2_000  # per side; the fit is quadratic


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
    attack = fit_svc(members=confidence(members)[:, None], non_members=confidence(non_members)[:, None])
    called: BoolArray = attack.predict(confidence(forget)[:, None]) == 0
    return called


def fit_svc(*, members: FloatArray, non_members: FloatArray) -> SVC:
    """The attack of Jia et al. 2023 fitted to features ([n, k] each); it calls members 1 and others 0."""
    is_member = np.repeat([1, 0], [len(members), len(non_members)])
    # The seed decides nothing here, but without one scikit-learn draws from the global generator.
    attack = SVC(C=3, kernel="rbf", gamma="auto", random_state=0)
    return attack.fit(np.concatenate([members, non_members]), is_member)
