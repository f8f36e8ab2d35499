"""The relative attack: is a row better known to the network than rows of a population are, for its hardness?

Deep audit, issue 6: "RMIA". It works with one to four retrained references (Zarifzadeh et al. 2024, in its
offline form). For a row x, with p(x) the probability that the network gives its label,

    Pr(x) = ((1 + a) mean of the references' p(x) + 1 - a) / 2
    score(x) = share of population rows z with [p(x) / Pr(x)] / [p(z) / Pr(z)] >= gamma

References that never saw x give its probability without it; a (0.3) extrapolates to that with it. The
population are rows that no network was trained on and that are not H: T. The attack is one-sided: rows that
were forgotten too much score low, and "strangers" and an AUC below 1/2 show them.

    {"rmia": {"original" | "unlearned": None |                            None: no reference, or not finite
        ATTACK + {"references": K, "a", "gamma", "population": rows}}}    `workers.audit.attack`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, log_expit

from workers.audit.attack import attack_figures
from workers.audit.calibration import Referenced
from workers.audit.outputs import FloatArray, Sets
from workers.audit.statistics import Scores

OFFLINE_A = 0.3
GAMMA = 1.0


def rmia_figures(
    network: Sets,
    *,
    references: Sequence[Sets],
    rng: np.random.Generator,
    a: float = OFFLINE_A,
    gamma: float = GAMMA,
) -> dict[str, Any] | None:
    """F against H by their scores, in the layout above; "test" is the population."""
    forget = Referenced.of(network, references, "forget")
    holdout = Referenced.of(network, references, "holdout")
    population = Referenced.of(network, references, "test")
    if forget is None or holdout is None or population is None:
        return None
    scores = Scores(*(rmia_scores(rows, population, a=a, gamma=gamma) for rows in (forget, holdout)))
    return {
        **attack_figures(scores, rng=rng),
        "references": len(references),
        "a": a,
        "gamma": gamma,
        "population": len(population.network),
    }


def rmia_scores(
    rows: Referenced, population: Referenced, *, a: float = OFFLINE_A, gamma: float = GAMMA
) -> FloatArray:
    """The score of each row: float64 [n] in [0, 1], a multiple of 1 / population rows.

    By sorting the population, O((n + z) log z), on logarithms: a probability that rounds to 1, or a ratio of
    two that round to 0, would tie. The paper asks for at least gamma, its authors' code for more.

    Args:
        a: in [0, 1].
        gamma: above 0; the larger it is, the surer of membership a high score is.
    """
    of_rows, of_population = (_log_ratios(each, a) for each in (rows, population))
    outdone = np.searchsorted(np.sort(of_population), of_rows - np.log(gamma), side="right")
    scores: FloatArray = outdone / len(of_population)
    return scores


def _log_ratios(rows: Referenced, a: float) -> FloatArray:
    """log p(x) / Pr(x): float64 [n]."""
    without = expit(rows.references).mean(axis=0)
    ratios: FloatArray = log_expit(rows.network) - np.log(((1 + a) * without + 1 - a) / 2)
    return ratios
