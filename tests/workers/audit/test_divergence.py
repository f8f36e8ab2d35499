from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

from workers.audit.divergence import divergence_figures, jensen_shannon
from workers.audit.outputs import FloatArray, Outputs

MakeOutputs = Callable[..., Outputs]
distributions = st.lists(st.floats(-40, 40), min_size=3, max_size=3).map(
    lambda z: softmax(np.array([z]), axis=1)
)


def test_agrees_with_scipy() -> None:
    """The square of scipy's distance, row by row."""
    rng = np.random.default_rng(0)
    first, second = (rng.dirichlet(np.ones(7), 30) for _ in range(2))
    expected = jensenshannon(first, second, base=2, axis=1) ** 2
    np.testing.assert_allclose(jensen_shannon(first, second), expected, atol=1e-12)


def test_distributions_a_rounding_error_apart() -> None:
    """They are at most a rounding error above 0, and never below it, where scipy's root is NaN."""
    rng = np.random.default_rng(0)
    first = rng.dirichlet(np.ones(10), 5_000)
    found = jensen_shannon(first, np.nextafter(first, rng.integers(0, 2, first.shape)))
    assert ((found >= 0) & (found < 1e-15)).all()


def test_hand_worked() -> None:
    """(1, 0) against (1/2, 1/2): m is (3/4, 1/4); half of log2 4/3 + (log2 2/3 + log2 2) / 2 is .311278."""
    found = jensen_shannon(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]))
    assert found.tolist() == pytest.approx([0.5 * (np.log2(4 / 3) + 0.5 * np.log2(4 / 3))], abs=1e-12)
    assert found.tolist() == pytest.approx([0.311278], abs=1e-6)


@given(distributions, distributions)
def test_is_symmetric_and_between_zero_and_one(first: FloatArray, second: FloatArray) -> None:
    """0 for the same distribution, 1 for disjoint ones."""
    one, other = jensen_shannon(first, second), jensen_shannon(second, first)
    assert one == pytest.approx(other, abs=1e-15)
    assert 0 <= one[0] <= 1
    assert jensen_shannon(first, first).tolist() == [0.0]
    assert jensen_shannon(np.eye(2), np.eye(2)[::-1]).tolist() == [1.0, 1.0]


class TestDivergenceFigures:
    def test_means_over_references_and_pairs(self, make_outputs: MakeOutputs) -> None:
        """Three distances from three references, three between them."""
        outputs = [Outputs(make_outputs(seed).logits, make_outputs(0).labels) for seed in (1, 2, 3, 4)]
        found = divergence_figures(outputs[0], outputs[1:])
        assert found is not None
        p = [softmax(part.logits, axis=1) for part in outputs]
        distances = {(i, j): jensenshannon(p[i], p[j], 2, axis=1) ** 2 for i in range(4) for j in range(i)}
        mean = np.mean([distances[i, 0] for i in (1, 2, 3)])
        floor = np.mean([distances[pair] for pair in ((2, 1), (3, 1), (3, 2))])
        assert found == {
            "mean": pytest.approx(mean, abs=1e-12),
            "floor": pytest.approx(floor, abs=1e-12),
            "excess": pytest.approx(mean - floor, abs=1e-12),
            "references": 3,
        }

    def test_one_reference_has_no_floor(self, make_outputs: MakeOutputs) -> None:
        """The distance stands alone."""
        found = divergence_figures(make_outputs(1), [make_outputs(1)])
        assert found == {"mean": 0.0, "floor": None, "excess": None, "references": 1}

    def test_needs_references_and_finite_rows(self, make_outputs: MakeOutputs) -> None:
        """None without a reference, without rows, and where a logit is not finite."""
        broken = make_outputs(1)
        broken.logits[0, 0] = np.nan
        empty = make_outputs(1).take(np.empty(0, dtype=np.int64))
        assert divergence_figures(make_outputs(1), []) is None
        assert divergence_figures(make_outputs(1), [broken]) is None
        assert divergence_figures(empty, [empty]) is None
