"""Tiers of memorisation."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from app.registry.schemas import Tier
from app.registry.tiers import NoTiers, tier

TIERS: tuple[Tier, ...] = ("high", "mid", "low")


def test_tiers_are_the_ends_and_the_middle() -> None:
    """Worked by hand: by default the middle is the median, given as 0.5 it lies elsewhere."""
    scores = [0.9, 0.0, 0.1, 0.2, 0.45, 0.05, 0.8, 0.6]
    assert {which: tier(scores, 2, which) for which in TIERS} == {
        "high": [0, 6],
        "mid": [3, 4],  # the median is 0.325
        "low": [1, 5],
    }
    assert tier(scores, 2, "mid", centre=0.5) == [4, 7]


def test_equal_scores_are_taken_in_order() -> None:
    """Of ties the first places are in every tier."""
    scores = [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 0.0, 1.0, 0.5]
    assert [tier(scores, 2, which) for which in TIERS] == [[1, 4], [2, 5], [0, 3]]


@pytest.mark.parametrize("centre", [0.5, None])
def test_tiers_agree_with_numpy(centre: float | None) -> None:
    """Random scores with ties and gaps against stable sorting of arrays."""
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 200, 300) / 200
    scores[rng.random(300) < 0.1] = np.nan
    middle = np.nanmedian(scores) if centre is None else centre
    keys = {"high": -scores, "mid": np.abs(scores - middle), "low": scores}
    for which in TIERS:
        expected = np.sort(np.argsort(keys[which], kind="stable")[:40])  # NaN comes last
        assert tier(scores.tolist(), 40, which, centre=centre) == expected.tolist()


def test_rows_without_a_score_are_in_no_tier() -> None:
    """NaN is neither the largest nor the smallest."""
    scores = [nan, 0.9, 0.5, nan, 0.1]
    assert [tier(scores, 1, which) for which in TIERS] == [[1], [2], [4]]


@pytest.mark.parametrize("which", TIERS)
@pytest.mark.parametrize(
    ("scores", "size", "centre", "reason"),
    [
        ([place / 7 for place in range(8)], 3, None, "more than the 8 rows"),
        ([0.0, 0.01, 0.02, 0.03, 0.04, 0.9], 2, 0.5, "both high and mid"),
        ([0.1, 0.96, 0.97, 0.98, 0.99, 1.0], 2, 0.5, "both low and mid"),
        ([0.0] * 9, 2, None, "both high and mid"),
        ([0.0] * 9, 0, None, "at least one row"),
    ],
)
def test_tiers_that_would_share_rows_are_refused(
    scores: list[float], size: int, centre: float | None, reason: str, which: Tier
) -> None:
    """Whichever is asked for, so that the three of a comparison are made or refused together."""
    with pytest.raises(NoTiers, match=reason):
        tier(scores, size, which, centre=centre)
