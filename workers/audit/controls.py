"""Attacks where there should be nothing to find, or nothing new: they tell what the others are worth.

Fast audit, issue 6: "attack on retained members before and after" and the validity check "blind baseline".

    {"retained": None |                                                   None: a set is empty or not finite
         {"original" | "unlearned": AUC,                                  `workers.audit.attack.auc_figures`
          "difference": {"difference", "low", "high", "low90", "high90", "p"},
          "n": rows of R, "class_distance"},
     "blind": None | AUC + {"forget": n, "holdout": n}}                   None: fewer than four rows of either

**Retained**: unlearning F may lay R open. phi of R, mixed by class as H is, against phi of H, and how the
area changes from the original to the unlearned network: above 0 the retained rows became easier to recognise.

**Blind**: an attack that asks no network. If F and H can be told apart by what they look like, whatever a
network shows of them may be due to that. A fair F and H give 1/2; an interval wholly above it makes the audit
not valid. Das, Zhang & Tramer 2024 ("Blind baselines beat membership inference attacks").
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from workers.audit.attack import auc_figures
from workers.audit.matching import match_classes
from workers.audit.membership import margin_scores
from workers.audit.outputs import FloatArray, Sets
from workers.audit.statistics import Scores, paired_delong


def retained_figures(original: Sets, unlearned: Sets, *, rng: np.random.Generator) -> dict[str, Any] | None:
    """The attack on retained members before and after, in the layout above; "holdout" as already matched."""
    match = match_classes(original["holdout"].labels, original["retain"].labels, rng=rng)
    before, after = (
        margin_scores({**sets, "forget": sets["retain"].take(match.rows)}) for sets in (original, unlearned)
    )
    if before is None or after is None:
        return None
    return {
        "original": auc_figures(before),
        "unlearned": auc_figures(after),
        "difference": paired_delong(after, before).figures,
        "n": len(match.rows),
        "class_distance": match.distance,
    }


def blind_figures(
    forget: FloatArray, holdout: FloatArray, *, rng: np.random.Generator
) -> dict[str, Any] | None:
    """How well a logistic regression tells F from H without any network, in the layout above.

    It learns from a random half of F and of H and is measured on the others, which keeps DeLong's interval
    right: scores pooled over folds are not independent.

    Args:
        forget: what can be seen of F, float64 [m, d]: one-hot labels, means of colour channels, features of
            a public network.
        holdout: the same of H, float64 [n, d].

    Returns:
        None also where an entry is not finite.
    """
    if min(len(forget), len(holdout)) < 4 or not all(np.isfinite(part).all() for part in (forget, holdout)):
        return None
    (learned_f, tested_f), (learned_h, tested_h) = (_halves(part, rng) for part in (forget, holdout))
    attack = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000, class_weight="balanced"))
    attack.fit(np.concatenate([learned_f, learned_h]), np.repeat([1, 0], [len(learned_f), len(learned_h)]))
    scores = Scores(attack.decision_function(tested_f), attack.decision_function(tested_h))
    return {**auc_figures(scores), "forget": len(forget), "holdout": len(holdout)}


def _halves(rows: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    order = rng.permutation(len(rows))
    return rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]
