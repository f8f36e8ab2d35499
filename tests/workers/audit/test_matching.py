from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.audit.matching import Match, match_classes
from workers.audit.outputs import IntArray

counts_of_three = st.tuples(*[st.integers(0, 6)] * 3)


def labels(counts: tuple[int, ...]) -> IntArray:
    return np.repeat(np.arange(len(counts)), counts).astype(np.int64)


def distance_of(forget: IntArray, chosen: IntArray) -> float:
    """Total variation by its definition: half the sum of differences of shares."""
    every = np.union1d(forget, chosen)
    shares = [((forget == label).mean(), (chosen == label).mean()) for label in every]
    return float(sum(abs(of_forget - of_chosen) for of_forget, of_chosen in shares) / 2)


def matched(forget: IntArray, holdout: IntArray, distance: float, seed: int = 0) -> Match:
    return match_classes(forget, holdout, rng=np.random.default_rng(seed), distance=distance)


@given(counts_of_three.filter(any), counts_of_three.filter(any), st.sampled_from([0.0, 0.051, 0.103, 0.307]))
def test_is_the_largest_subset_within_the_bound(
    forget: tuple[int, ...], holdout: tuple[int, ...], distance: float
) -> None:
    """No other choice of counts is larger within the bound; where none is within, none is nearer."""
    found = matched(labels(forget), labels(holdout), distance)
    assert found.distance == pytest.approx(
        distance_of(labels(forget), labels(holdout)[found.rows]), abs=1e-12
    )
    absent = sum(f for f, h in zip(forget, holdout, strict=True) if h == 0) / sum(forget)
    bound = distance if absent <= distance else absent + 0.01
    choices = [
        (sum(counts), distance_of(labels(forget), labels(counts)))
        for counts in product(*(range(h + 1) for h in holdout))
        if any(counts)
    ]
    within = [size for size, reached in choices if reached <= bound]
    if within:
        assert len(found.rows) == max(within)
    else:
        assert found.distance == pytest.approx(min(reached for _, reached in choices), abs=1e-12)


def test_rows_are_drawn_within_their_class() -> None:
    """The rows chosen are in order, none twice, and differ from seed to seed."""
    forget, holdout = labels((5, 5)), np.tile([0, 0, 0, 1], 50)
    one, same, other = (matched(forget, holdout, 0.0, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.rows, same.rows)
    assert one.rows.tolist() != other.rows.tolist()
    assert np.all(np.diff(one.rows) > 0)
    assert np.bincount(holdout[one.rows]).tolist() == [50, 50]


def test_a_class_that_the_holdout_lacks_shows_in_the_distance() -> None:
    """Half of F in a class H does not have: the rest is matched and the distance says one half."""
    found = matched(labels((0, 10, 10)), labels((40, 40, 0)), 0.05)
    assert found.distance == pytest.approx(0.5, abs=0.011)
    assert len(found.rows) >= 40


def test_a_removed_class_is_compared_with_itself() -> None:
    """If F is one class, the holdout is that class and as little else as the bound allows."""
    found = matched(labels((0, 0, 30)), labels((50, 50, 50)), 0.1)
    assert len(found.rows) == 55
    assert found.distance == pytest.approx(5 / 55)


@pytest.mark.parametrize(("forget", "holdout"), [((0,), (5,)), ((5,), (0,))])
def test_nothing_to_match(forget: tuple[int, ...], holdout: tuple[int, ...]) -> None:
    """An empty F or H gives no rows and no distance."""
    found = matched(labels(forget), labels(holdout), 0.1)
    assert (len(found.rows), found.distance) == (0, None)


def test_a_lopsided_large_holdout_is_matched_quickly() -> None:
    """One class of H twenty times the other, against an F mixed the other way round."""
    found = matched(labels((900, 100)), labels((1_000, 40_000)), 0.1)
    assert found.distance == pytest.approx(0.1, abs=1e-3)
    assert len(found.rows) == 1250
