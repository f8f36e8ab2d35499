from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from workers.audit.memorisation import Tier, memorisation, subset, tier
from workers.audit.outputs import FloatArray

_TIERS: tuple[Tier, ...] = ("high", "mid", "low")


def test_a_score_is_accuracy_inside_minus_outside() -> None:
    """Four networks, worked by hand: learned by heart, understood, never understood, and half and half."""
    included = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]], dtype=bool)
    correct = np.array([[1, 1, 0, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 1, 0]], dtype=bool)
    found = memorisation(included, correct)
    assert found.scores.tolist() == [1.0, 0.0, -0.5, 0.0]
    assert found.standard_errors.tolist() == [0.5] * 4  # sqrt(1/8 + 1/8)


def test_it_agrees_with_counting_in_fractions() -> None:
    """Random subsets of three sizes against a plain count, network by network."""
    rng = np.random.default_rng(0)
    included = np.stack([rng.random(12) < share for share in (0.3, 0.5, 0.7) for _ in range(8)])
    correct = rng.random(included.shape) < 0.6
    found = memorisation(included, correct)
    for row in range(12):
        inside = [bool(correct[t, row]) for t in range(24) if included[t, row]]
        outside = [bool(correct[t, row]) for t in range(24) if not included[t, row]]
        score = Fraction(sum(inside), len(inside)) - Fraction(sum(outside), len(outside))
        variance = Fraction(1, 4 * len(inside)) + Fraction(1, 4 * len(outside))
        assert found.scores[row] == pytest.approx(float(score), abs=1e-15)
        assert found.standard_errors[row] == pytest.approx(float(variance) ** 0.5, rel=1e-15)


def test_the_standard_error_holds_at_its_worst() -> None:
    """Answers that are coin flips spread the scores exactly as far as the stated error."""
    rng = np.random.default_rng(1)
    included = np.zeros((100, 20_000), dtype=bool)
    included[:70] = True
    found = memorisation(included, rng.random(included.shape) < 0.5)
    assert found.standard_errors[0] == pytest.approx(0.1091, abs=5e-5)
    assert found.scores.std() == pytest.approx(found.standard_errors[0], rel=0.02)


def test_a_row_that_was_always_in_or_never_has_no_score() -> None:
    """What was never observed is not taken for 0, nor for certain."""
    included = np.array([[1, 0, 1], [1, 0, 0]], dtype=bool)
    found = memorisation(included, np.ones((2, 3), dtype=bool))
    assert np.isnan(found.scores).tolist() == [True, True, False]
    assert np.isnan(found.standard_errors).tolist() == [True, True, False]


@pytest.mark.parametrize(("included", "correct"), [((3, 4), (3, 5)), ((4,), (4,))])
def test_shapes_that_do_not_fit_are_refused(included: tuple[int, ...], correct: tuple[int, ...]) -> None:
    """Both matrices are networks by rows."""
    with pytest.raises(ValueError, match=r"\[T, n\]"):
        memorisation(np.ones(included, dtype=bool), np.ones(correct, dtype=bool))


def test_mislabelled_digits_are_memorised() -> None:
    """60 classifiers on 70% of 300 digits: the 15 with wrong labels stand out from the others."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(labels))[:300]
    images, labels = images[chosen] / 16, labels[chosen]
    labels[:15] = (labels[:15] + rng.integers(1, 10, 15)) % 10
    included, correct = np.zeros((60, 300), dtype=bool), np.zeros((60, 300), dtype=bool)
    for number in range(60):
        places = subset(300, 0.7, number)
        included[number, places] = True
        classifier = LogisticRegression(C=100, max_iter=2_000).fit(images[places], labels[places])
        correct[number] = classifier.predict(images) == labels
    scores = memorisation(included, correct).scores
    assert scores[:15].min() > 0.9
    assert scores[15:].mean() < 0.2
    assert mannwhitneyu(scores[:15], scores[15:]).statistic / (15 * 285) > 0.97


def test_a_subset_is_drawn_by_its_seed() -> None:
    """Distinct places in order, as many as asked for; another seed draws others."""
    places = subset(1_000, 0.7, seed=3)
    assert len(places) == 700
    assert (np.diff(places) > 0).all()
    assert 0 <= places[0] < places[-1] < 1_000
    assert np.array_equal(places, subset(1_000, 0.7, seed=3))
    assert not np.array_equal(places, subset(1_000, 0.7, seed=4))


def test_every_row_is_drawn_equally_often() -> None:
    """Of 2,000 subsets each row is in 70%, give or take four standard errors."""
    counts = np.bincount(np.concatenate([subset(20, 0.7, seed) for seed in range(2_000)]), minlength=20)
    assert np.abs(counts - 1_400).max() < 4 * (2_000 * 0.7 * 0.3) ** 0.5


@pytest.mark.parametrize(("count", "ratio"), [(10, 0.0), (10, 1.0), (10, 0.01), (1, 0.7), (0, 0.7)])
def test_a_subset_leaves_rows_on_both_sides(count: int, ratio: float) -> None:
    """Otherwise nothing could be compared."""
    with pytest.raises(ValueError, match="no row"):
        subset(count, ratio, seed=0)


def test_tiers_are_the_ends_and_the_middle() -> None:
    """Worked by hand: by default the middle is the median, given as 0.5 it lies elsewhere."""
    scores = np.array([0.9, 0.0, 0.1, 0.2, 0.45, 0.05, 0.8, 0.6])
    assert {which: tier(scores, 2, which).tolist() for which in _TIERS} == {
        "high": [0, 6],
        "mid": [3, 4],  # the median is 0.325
        "low": [1, 5],
    }
    assert tier(scores, 2, "mid", centre=0.5).tolist() == [4, 7]


def test_equal_scores_are_taken_in_order() -> None:
    """Of ties the first places are in every tier."""
    scores = np.array([0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 0.0, 1.0, 0.5])
    assert [tier(scores, 2, which).tolist() for which in _TIERS] == [[1, 4], [2, 5], [0, 3]]


def test_tiers_agree_with_sorting_in_python() -> None:
    """Random scores with ties and gaps against sorting by (key, place)."""
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 200, 300) / 200
    scores[rng.random(300) < 0.1] = np.nan
    rows = [place for place in range(300) if scores[place] == scores[place]]
    keys = {"high": -scores, "mid": abs(scores - 0.5), "low": scores}
    for which in _TIERS:
        ranked = sorted((keys[which][place], place) for place in rows)
        expected = sorted(place for _, place in ranked[:40])
        assert tier(scores, 40, which, centre=0.5).tolist() == expected


def test_rows_without_a_score_are_in_no_tier() -> None:
    """NaN is neither the largest nor the smallest."""
    scores = np.array([np.nan, 0.9, 0.5, np.nan, 0.1])
    assert [tier(scores, 1, which).tolist() for which in _TIERS] == [[1], [2], [4]]


@pytest.mark.parametrize("which", _TIERS)
@pytest.mark.parametrize(
    ("scores", "size", "centre", "reason"),
    [
        (np.linspace(0, 1, 8), 3, None, "more than the 8 rows"),
        (np.array([0.0, 0.01, 0.02, 0.03, 0.04, 0.9]), 2, 0.5, "both high and mid"),
        (np.array([0.1, 0.96, 0.97, 0.98, 0.99, 1.0]), 2, 0.5, "both low and mid"),
        (np.zeros(9), 2, None, "both high and mid"),
        (np.zeros(9), 0, None, "at least one row"),
    ],
)
def test_tiers_that_would_share_rows_are_refused(
    scores: FloatArray, size: int, centre: float | None, reason: str, which: Tier
) -> None:
    """Whichever is asked for, so that the three of a comparison are made or refused together."""
    with pytest.raises(ValueError, match=reason):
        tier(scores, size, which, centre=centre)
