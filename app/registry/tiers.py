"""Tiers of memorisation: the rows that a network has learned most, least, or middlingly by heart.

Methods are compared on them because how memorised rows are decides how well each of them forgets (Zhao et al.
2024, What makes unlearning hard and what to do about it, arXiv 2406.01257).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import get_args

from app.registry.schemas import Tier


class NoTiers(Exception):
    """The rows cannot be divided so; the message says why, by numbers alone."""


def tier(scores: Sequence[float], size: int, which: Tier, *, centre: float | None = None) -> list[int]:
    """The rows that are memorised most, least, or middlingly: tiers of one size that share no row.

    Rows of equal scores are taken in the order of their places. Estimates from few networks have many equal
    scores; if rows are sorted by class, shuffle them before.

    Args:
        scores: Any score that grows with memorisation. A row whose score is NaN is in no tier.
        size: How many rows each tier has.
        which: "high" for the largest scores, "low" for the smallest, "mid" for those nearest to the centre.
        centre: Where the middle is: 0.5 for estimates of memorisation; None: the scores' median, for scores
            on a scale of their own.

    Returns:
        `size` places, ascending.

    Raises:
        NoTiers: The tiers would share rows, or be empty.
    """
    if size < 1:
        raise NoTiers("a tier has at least one row")
    known = [place for place, score in enumerate(scores) if not math.isnan(score)]
    if 3 * size > len(known):
        raise NoTiers(f"three tiers of {size} rows are more than the {len(known)} rows with a score")
    middle = median(scores[place] for place in known) if centre is None else centre
    ranked = {
        "high": sorted(known, key=lambda place: -scores[place]),
        "mid": sorted(known, key=lambda place: abs(scores[place] - middle)),
        "low": sorted(known, key=lambda place: scores[place]),
    }
    tiers = {name: set(ranked[name][:size]) for name in get_args(Tier)}
    for end in ("high", "low"):  # these two share rows only where the middle does, too
        if shared := len(tiers[end] & tiers["mid"]):
            raise NoTiers(f"tiers of {size} rows overlap: {shared} rows would be in both {end} and mid")
    return sorted(tiers[which])
