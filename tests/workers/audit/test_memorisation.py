from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from workers.audit.memorisation import memorisation, subset


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
