"""Memorisation: how much a network's answer on a training row depends on having trained on that very row.

Feldman & Zhang 2020 (What Neural Networks Memorize and Why, equation 1) define for an algorithm A, training
rows S and a row i of them

    mem(A, S, i) = P[h(x_i) = y_i | h from A(S)] - P[h(x_i) = y_i | h from A(S without i)]

and estimate it from networks trained on random subsets of S. Rows of high memorisation (mislabelled, atypical
ones) are those whose deletion changes a network, so methods of unlearning are compared on tiers of them
(`app.registry.tiers`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workers.audit.outputs import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Memorisation:
    """Estimates of mem(A, S, i) for every row i.

    Attributes:
        scores: float64 [n] in [-1, 1]; NaN for a row that was in all subsets or in none.
        standard_errors: float64 [n]: the largest that the scores can have, see `memorisation`; NaN likewise.
    """

    scores: FloatArray
    standard_errors: FloatArray


def subset(count: int, ratio: float, seed: int) -> IntArray:
    """Places of the rows that one of the networks trains on, drawn without replacement.

    Args:
        count: How many rows there are; places are in [0, count).
        ratio: The share of them that is drawn, 0.7 in the paper; round(ratio * count) rows are.
        seed: Decides the draw.

    Returns:
        int64 [round(ratio * count)], ascending.

    Raises:
        ValueError: No row would be in the subset, or none outside it, so that it could tell nothing.
    """
    size = round(ratio * count)
    if not 0 < size < count:
        raise ValueError(f"a share of {ratio} of {count} rows leaves no row inside or no row outside")
    return np.sort(np.random.default_rng(seed).choice(count, size, replace=False))


def memorisation(included: BoolArray, correct: BoolArray) -> Memorisation:
    """The subsampled estimator (Feldman & Zhang 2020, section 2): accuracy inside minus accuracy outside.

    A row's score is the share of the networks trained on it that classify it as labelled, minus that share of
    the networks not trained on it. With k and m of these the standard error is at most

        sqrt(1 / (4 k) + 1 / (4 m)),

    as the variance p (1 - p) of one answer is at most 1 / 4: .11 for 100 networks on 70% of the rows, .055
    for 400. The observed variance is no use in its place: it is 0 for a row that all of few networks agree
    on. A row that no network was trained without has no score; taking the unknown share for 0, as published
    code does, would call it memorised by heart.

    Args:
        included: bool [T, n]: whether network t was trained on row i.
        correct: bool [T, n]: whether network t, in evaluation mode and without augmentation, classifies row i
            as labelled.

    Raises:
        ValueError: The shapes are not two equal ones of two dimensions.
    """
    if included.ndim != 2 or included.shape != correct.shape:
        raise ValueError(f"included {included.shape} and correct {correct.shape} must both be [T, n]")
    inside = included.sum(axis=0, dtype=np.float64)
    outside = len(included) - inside
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = (correct & included).sum(axis=0) / inside - (correct & ~included).sum(axis=0) / outside
        errors = np.sqrt(0.25 / inside + 0.25 / outside)
    return Memorisation(scores, np.where(np.isnan(scores), np.nan, errors))
