from __future__ import annotations

import numpy as np
import pytest

from workers.data.sampling import sampled_places


@pytest.mark.parametrize(("count", "most"), [(0, 3), (3, 3), (3, 5), (100, 7)])
def test_places_are_distinct_and_ascend(count: int, most: int) -> None:
    """As many as asked, or all; the seed decides which."""
    places = sampled_places(count, most, seed=1)
    assert len(places) == min(count, most)
    assert (np.diff(places) > 0).all()
    assert set(places.tolist()) <= set(range(count))
    assert places.tolist() == sampled_places(count, most, seed=1).tolist()


def test_every_row_may_be_drawn() -> None:
    """Over many seeds each of ten rows comes about three times in ten."""
    counts = np.bincount(np.concatenate([sampled_places(10, 3, seed) for seed in range(2000)]))
    assert (abs(counts - 600) < 5 * np.sqrt(2000 * 0.3 * 0.7)).all()
