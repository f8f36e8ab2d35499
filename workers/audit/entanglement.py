"""How entangled F and R are in a network's features: what is hard to tell apart is hard to forget apart.

Papers' figures, issue 6: "entanglement E_Var and E_Wp (seeded, repeated, exact optimal transport)". They
describe difficulty, not success, and enter no verdict. Features are those before the last layer, in
evaluation mode.

    {"entanglement": {NETWORK: None |                                     None: no rows, or not finite
        {"score": None | ratio,                                           None: the centroids are the same
         "variance": None | ratio, "variance_scaled": None | share,       the same
         "transport": {"mean", "deviation", "rows", "repeats"}}}}         rows of either side in each repeat

**score** is the entanglement score of Zhao et al. 2024 (RUM): the spread of R and of F about their
centroids over that of the centroids about their mean, on features as they are. **variance** (E_Var) is the
same ratio on features of unit length, with the mean of all rows in the middle; where F is small that
divides by more, so the two must never be compared. `variance_scaled` is the share that is plotted: a
1,300th, at most 1. **transport** (E_Wp) is 1 minus the cost of moving F onto R, on features of unit length,
in units of the largest distance between two rows. High is entangled in all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from workers.audit.outputs import FloatArray

TRANSPORT_ROWS = 1_000  # per side; solving takes the cube
TRANSPORT_REPEATS = 5
VARIANCE_SCALE = 1_300.0  # a constant of the published code


def entanglement_figures(
    retain: FloatArray, forget: FloatArray, *, rng: np.random.Generator
) -> dict[str, Any] | None:
    """All of them for one network, in the layout above.

    Args:
        retain: features of R or of a sample of it, float64 [m, d].
        forget: those of F, float64 [n, d].
    """
    if not all(len(part) and np.isfinite(part).all() for part in (retain, forget)):
        return None
    variance = variance_entanglement(retain, forget)
    return {
        "score": entanglement_score(retain, forget),
        "variance": variance,
        "variance_scaled": None if variance is None else min(1.0, variance / VARIANCE_SCALE),
        "transport": transport_entanglement(retain, forget, rng=rng),
    }


def entanglement_score(retain: FloatArray, forget: FloatArray) -> float | None:
    """[mean |r - c_R|^2 + mean |f - c_F|^2] / [(|c_R - c|^2 + |c_F - c|^2) / 2], c = (c_R + c_F) / 2.

    Zhao et al. 2024. None where the centroids are the same.
    """
    return _ratio(_within(retain) + _within(forget), _between(retain, forget, share=0.5))


def variance_entanglement(retain: FloatArray, forget: FloatArray) -> float | None:
    """The same ratio on rows of unit length, c being the mean of all rows; None likewise.

    With a share p of the rows in R it is entanglement_score / (2 p^2 + 2 (1 - p)^2) of the same features.
    """
    of_retain, of_forget = _unit(retain), _unit(forget)
    share = len(retain) / (len(retain) + len(forget))
    return _ratio(_within(of_retain) + _within(of_forget), _between(of_retain, of_forget, share=share))


def transport_entanglement(
    retain: FloatArray,
    forget: FloatArray,
    *,
    rng: np.random.Generator,
    rows: int = TRANSPORT_ROWS,
    repeats: int = TRANSPORT_REPEATS,
) -> dict[str, Any]:
    """1 - W_1 / largest distance, of equally many rows of either side, drawn `repeats` times.

    Between equally many rows of equal weight an optimal plan moves whole rows, so that the assignment problem
    is the exact transport. All rows the same counts as entirely entangled. Few rows make the cost larger
    than it is for the distributions they come from: compare networks at the same numbers only.

    Returns:
        {"mean", "deviation": over the repeats, None if there is only one, "rows", "repeats"}.
    """
    size = min(len(retain), len(forget), rows)
    sides = _unit(retain), _unit(forget)
    values = [
        _transported(*(side[rng.choice(len(side), size, replace=False)] for side in sides))
        for _ in range(repeats)
    ]
    return {
        "mean": float(np.mean(values)),
        "deviation": float(np.std(values, ddof=1)) if repeats > 1 else None,
        "rows": size,
        "repeats": repeats,
    }


def _transported(first: FloatArray, second: FloatArray) -> float:
    distances = cdist(first, second)
    largest = distances.max()
    if largest == 0:
        return 1.0
    return float(1 - distances[linear_sum_assignment(distances)].mean() / largest)


def _within(rows: FloatArray) -> float:
    return float(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())


def _between(retain: FloatArray, forget: FloatArray, *, share: float) -> float:
    """Mean squared distance of the two centroids from their mean, in which R's has this share."""
    gap = float(((retain.mean(axis=0) - forget.mean(axis=0)) ** 2).sum())
    return gap * (share**2 + (1 - share) ** 2) / 2


def _ratio(within: float, between: float) -> float | None:
    return within / between if between > 0 else None


def _unit(rows: FloatArray) -> FloatArray:
    """Rows of length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.where(lengths > 0, lengths, 1.0)
    return unit
