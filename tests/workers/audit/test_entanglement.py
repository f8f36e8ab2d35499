from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import wasserstein_distance_nd

from workers.audit.entanglement import (
    entanglement_figures,
    entanglement_score,
    transport_entanglement,
    variance_entanglement,
)
from workers.audit.outputs import FloatArray


def features(seed: int, n: int, *, away: float = 0.0, d: int = 3) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d)) + away


def unit(rows: FloatArray) -> FloatArray:
    return np.array([row / sum(value**2 for value in row) ** 0.5 for row in rows])


class TestScore:
    def test_hand_worked(self) -> None:
        """R at 0 and 2, F at 10, 10 and 13: (1 + 2) / ((5^2 + 5^2) / 2)."""
        retain, forget = np.array([[0.0], [2.0]]), np.array([[10.0], [10.0], [13.0]])
        assert entanglement_score(retain, forget) == pytest.approx(3 / 25, abs=1e-12)

    def test_agrees_with_the_definition(self) -> None:
        """Row by row, with the mean of the centroids in the middle."""
        retain, forget = features(1, 40), features(2, 9, away=0.7)
        c_r, c_f = retain.mean(axis=0), forget.mean(axis=0)
        middle = (c_r + c_f) / 2
        spread = np.mean([np.sum((r - c_r) ** 2) for r in retain]) + np.mean(
            [np.sum((f - c_f) ** 2) for f in forget]
        )
        between = (np.sum((c_r - middle) ** 2) + np.sum((c_f - middle) ** 2)) / 2
        assert entanglement_score(retain, forget) == pytest.approx(spread / between, abs=1e-9)


class TestVariance:
    def test_agrees_with_the_definition(self) -> None:
        """On rows of unit length, with the mean of all rows in the middle."""
        retain, forget = features(1, 40), features(2, 9, away=0.7)
        r, f = unit(retain), unit(forget)
        middle = np.concatenate([r, f]).mean(axis=0)
        spread = np.sum((r - r.mean(axis=0)) ** 2) / 40 + np.sum((f - f.mean(axis=0)) ** 2) / 9
        between = (np.sum((r.mean(axis=0) - middle) ** 2) + np.sum((f.mean(axis=0) - middle) ** 2)) / 2
        assert variance_entanglement(retain, forget) == pytest.approx(spread / between, abs=1e-9)

    def test_is_not_the_score(self) -> None:
        """With 94% of the rows in R it is .564 of the score of the same rows."""
        retain, forget = unit(features(1, 94)), unit(features(2, 6, away=1.0))
        score = entanglement_score(retain, forget)
        assert score is not None
        assert variance_entanglement(retain, forget) == pytest.approx(
            score / (2 * 0.94**2 + 2 * 0.06**2), abs=1e-9
        )
        assert variance_entanglement(retain, forget) == pytest.approx(0.564 * score, rel=1e-3)


class TestTransport:
    @pytest.mark.parametrize("n", [1, 3, 5])
    def test_agrees_with_trying_every_assignment(self, n: int) -> None:
        """The cheapest of n! assignments, over the largest distance."""
        retain, forget = features(3, n), features(4, n)
        distances = np.array([[np.linalg.norm(r - f) for f in unit(forget)] for r in unit(retain)])
        cheapest = min(distances[np.arange(n), list(order)].mean() for order in permutations(range(n)))
        found = transport_entanglement(retain, forget, rng=np.random.default_rng(0), repeats=2)
        assert found["mean"] == pytest.approx(1 - cheapest / distances.max(), abs=1e-9)
        assert found["deviation"] == pytest.approx(0.0, abs=1e-12)  # all rows, in another order

    def test_agrees_with_scipys_linear_programme(self) -> None:
        """Which may split rows, and gains nothing by it."""
        retain, forget = unit(features(5, 12)), unit(features(6, 12, away=0.5))
        largest = max(np.linalg.norm(r - f) for r in retain for f in forget)
        found = transport_entanglement(retain, forget, rng=np.random.default_rng(0), repeats=1)
        expected = 1 - wasserstein_distance_nd(retain, forget) / largest
        assert found == {
            "mean": pytest.approx(expected, abs=1e-9),
            "deviation": None,
            "rows": 12,
            "repeats": 1,
        }

    def test_draws_differ_and_repeat_with_their_seed(self) -> None:
        """As many rows of the larger side as there are of the smaller, others each time."""
        retain, forget = features(7, 60), features(8, 9)
        first, again = (
            transport_entanglement(retain, forget, rng=np.random.default_rng(1)) for _ in range(2)
        )
        assert first == again
        assert (first["rows"], first["repeats"]) == (9, 5)
        assert first["deviation"] > 0


class TestFigures:
    def test_what_is_apart_is_less_entangled(self) -> None:
        """In every figure."""
        retain = features(1, 80)
        near, far = (
            entanglement_figures(retain, features(2, 40, away=away), rng=np.random.default_rng(0))
            for away in (0.1, 4.0)
        )
        assert near is not None
        assert far is not None
        for name in ("score", "variance"):
            assert near[name] > far[name]
        assert near["transport"]["mean"] > far["transport"]["mean"]
        assert far["variance_scaled"] == pytest.approx(far["variance"] / 1_300, abs=1e-15)

    def test_rows_that_are_all_the_same(self) -> None:
        """No centroids to tell apart, so no ratio; nothing to move, so entirely entangled."""
        found = entanglement_figures(np.zeros((4, 2)), np.zeros((3, 2)), rng=np.random.default_rng(0))
        assert found is not None
        assert found["score"] is found["variance"] is found["variance_scaled"] is None
        assert found["transport"]["mean"] == 1.0

    def test_the_share_that_is_plotted_is_at_most_one(self) -> None:
        """Centroids that are almost the same give a huge ratio."""
        rows = features(1, 50)
        found = entanglement_figures(rows, rows + 1e-4, rng=np.random.default_rng(0))
        assert found is not None
        assert found["variance_scaled"] == 1.0

    @pytest.mark.parametrize("forget", [np.empty((0, 3)), np.array([[1.0, np.inf, 0.0]])])
    def test_no_rows_or_not_finite(self, forget: FloatArray) -> None:
        """No figures."""
        assert entanglement_figures(features(1, 5), forget, rng=np.random.default_rng(0)) is None
