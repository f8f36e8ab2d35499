"""Choosing from the holdout H the rows whose classes are mixed as those of the rows to forget."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain

import numpy as np

from workers.audit.outputs import HOLDOUTS, FloatArray, IntArray, Sets

MATCH_DISTANCE = 0.1  # what the default policy still accepts as comparable
_SLACK = 0.01
_STREAM = 0  # one seed serves several independent draws


@dataclass(frozen=True)
class Match:
    """Row numbers of the chosen part of H, ascending, and the total-variation distance that it reached.

    The distance is that between the class shares of the chosen rows and of F, in [0, 1]; None where F or H
    is empty. It includes the share of F in classes that H does not have, which no choice can mend.
    """

    rows: IntArray
    distance: float | None

    def applied_to(self, sets: Sets) -> Sets:
        """The same network's outputs with the holdout, under every condition, cut down to the chosen rows."""
        cut = {name: sets[name].take(self.rows) for name in HOLDOUTS if name in sets}
        return {**sets, **cut}


def match_holdout(sets: Sets, *, seed: int, class_distance: float = MATCH_DISTANCE) -> Match:
    """The rows of "holdout" to compare "forget" with, by `match_classes`; the same for the same seed."""
    rng = np.random.default_rng((seed, _STREAM))
    return match_classes(sets["forget"].labels, sets["holdout"].labels, rng=rng, distance=class_distance)


def match_classes(
    forget: IntArray, holdout: IntArray, *, rng: np.random.Generator, distance: float = MATCH_DISTANCE
) -> Match:
    """The largest subset of H within `distance` of F in class shares, else the nearest there is.

    Where H lacks classes of F that alone exceed `distance`, the bound is their share and 0.01. How many rows
    of each class is settled by counting; which rows, by `rng`.

    Args:
        forget: labels of F, int64 [m].
        holdout: labels of H, int64 [n].
    """
    if not len(forget) or not len(holdout):
        return Match(np.empty(0, dtype=np.int64), None)
    classes = int(max(forget.max(), holdout.max())) + 1
    shares = np.bincount(forget, minlength=classes) / len(forget)
    available = np.bincount(holdout, minlength=classes)
    counts, reached = _largest(shares, available, distance)
    rows = [
        rng.choice(np.flatnonzero(holdout == label), counts[label], replace=False)
        for label in np.flatnonzero(counts)
    ]
    return Match(np.sort(np.concatenate(rows)), reached)


def _largest(shares: FloatArray, available: IntArray, distance: float) -> tuple[IntArray, float]:
    """Counts and distance of the largest subset within the bound, of the nearest one if none is within."""

    def least(size: int) -> float:
        """What no choice of `size` rows can go below, rounding aside; it never falls as the size grows."""
        return float(np.maximum(0, shares - available / size).sum())

    absent = float(shares[available == 0].sum())
    bound = distance if absent <= distance else absent + _SLACK
    total = int(available.sum())
    top = bisect_right(range(1, total + 1), bound, key=least)
    nearest = np.zeros_like(available), np.inf
    for size in chain(range(top, 0, -1), range(total, top, -1)):
        counts = _nearest_counts(shares, available, size)
        reached = float(np.abs(counts / size - shares).sum() / 2)
        if reached < nearest[1] - 1e-12:
            nearest = counts, reached
        if reached <= bound:
            break
    return nearest


def _nearest_counts(shares: FloatArray, available: IntArray, size: int) -> IntArray:
    """`size` rows in all, within what is available, with the least sum of |count - size * share|.

    The sum is convex in each count, so rounding down and then adding where it costs least is exact. Once
    every class has its share, further rows cost the same anywhere and are added evenly.
    """
    wanted = shares * size
    counts = np.minimum(np.floor(wanted), available).astype(np.int64)
    missing, step = size - int(counts.sum()), 1
    while missing:
        unfilled = np.flatnonzero(counts < available)
        cheapest = unfilled[np.argsort((counts - wanted)[unfilled], kind="stable")][:missing]
        added = np.minimum((available - counts)[cheapest], step)
        counts[cheapest] += added
        missing -= int(added.sum())
        step = max(1, missing // len(shares))
    return counts
