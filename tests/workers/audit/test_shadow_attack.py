from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import norm

from workers.audit.outputs import BoolArray, FloatArray
from workers.audit.shadow_attack import (
    Normals,
    Shadows,
    excesses,
    log_likelihood_ratios,
    pooled_normals,
    shadow_figures,
)


class TestPooledNormals:
    def test_hand_worked(self) -> None:
        """Means 2 and 7 of two and three shadows; squares 2 + 6 over 1 + 2 degrees of freedom."""
        phi = np.array([[1.0, 6.0], [3.0, 6.0], [99.0, 9.0]])
        chosen = np.array([[1, 1], [1, 1], [0, 1]], dtype=bool)
        found = pooled_normals(phi, chosen)
        assert found is not None
        assert found.means.tolist() == [2.0, 7.0]
        assert found.deviations.tolist() == pytest.approx(
            [(8 / 3 * 1.5) ** 0.5, (8 / 3 * 4 / 3) ** 0.5], abs=1e-12
        )

    def test_hardness_of_rows_is_no_spread_of_networks(self) -> None:
        """Rows 100 apart, networks 1 apart: the deviation is that of networks, with a mean of 16."""
        rng = np.random.default_rng(0)
        phi = 100.0 * rng.normal(size=500) + rng.normal(size=(16, 500))
        found = pooled_normals(phi, np.ones(phi.shape, dtype=bool))
        assert found is not None
        assert found.deviations == pytest.approx((1 + 1 / 16) ** 0.5, rel=0.03)

    def test_two_shadows_a_row_are_calibrated(self) -> None:
        """One more network's phi has unit variance in these units, few though the shadows are."""
        rng = np.random.default_rng(1)
        phi = 5.0 * rng.normal(size=4_000) + rng.normal(size=(3, 4_000))
        found = pooled_normals(phi[:2], np.ones((2, 4_000), dtype=bool))
        assert found is not None
        assert excesses(phi[2], found).std() == pytest.approx(1.0, abs=0.04)

    @pytest.mark.parametrize(
        ("phi", "chosen"),
        [
            ([[1.0, 2.0], [3.0, 4.0]], [[1, 0], [0, 1]]),  # one shadow a row
            ([[1.0, 2.0], [1.0, 2.0]], [[1, 1], [1, 1]]),  # networks that do not differ
            ([[1.0, 2.0], [3.0, 4.0]], [[0, 0], [0, 0]]),  # none
        ],
    )
    def test_without_a_spread_there_is_no_distribution(
        self, phi: list[list[float]], chosen: list[list[int]]
    ) -> None:
        """Rather than one of width 0, or NaN."""
        assert pooled_normals(np.array(phi), np.array(chosen, dtype=bool)) is None


def test_ratios_are_differences_of_scipys_densities() -> None:
    """By the formula of the normal density, written out."""
    rng = np.random.default_rng(0)
    phi, a, b = rng.normal(size=(3, 20))
    s, r = rng.uniform(0.5, 2, (2, 20))
    expected = np.log(r / s) - (phi - a) ** 2 / (2 * s**2) + (phi - b) ** 2 / (2 * r**2)
    found = log_likelihood_ratios(phi, Normals(a, s), Normals(b, r))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(norm.cdf(excesses(phi, Normals(b, r))), norm.cdf(phi, b, r), atol=1e-12)


@dataclass(frozen=True)
class Audited:
    phi: FloatArray
    is_forget: BoolArray
    shadows: Shadows


def audited(seed: int, *, n: int = 300, count: int = 16, trace: float = 0.0) -> Audited:
    """Unlearning leaves a `trace` on a row, up or down, in shadows and audited network alike."""
    rng = np.random.default_rng(seed)
    hardness, is_forget = rng.normal(0.0, 4.0, n), np.arange(n) < n // 3
    state = (np.arange(count)[:, None] + rng.integers(0, 3, n)) % 3
    left = trace * np.sign(rng.normal(size=n))  # over-forgotten rows and under-forgotten ones
    phi = hardness + rng.normal(size=(count, n)) + left * (state == 0)
    own = hardness + rng.normal(size=n) + left * is_forget
    return Audited(own, is_forget, Shadows(phi, state == 0, state == 1))


class TestShadowFigures:
    def test_finds_traces_of_either_sign(self) -> None:
        """Half of F is forgotten too much, half too little: the ratio sees both, the tail does not."""
        of = audited(1, trace=2.0)
        found = shadow_figures(
            of.phi, is_forget=of.is_forget, shadows=of.shadows, rng=np.random.default_rng(0)
        )
        assert found is not None
        assert found["ulira"]["auc"] > 0.85
        assert 0.4 < found["offline"]["auc"] < 0.6
        assert (found["shadows"], found["rows"], found["left_out"]) == (
            16,
            {"forget": 100, "holdout": 200},
            0,
        )

    def test_finds_nothing_where_unlearning_leaves_nothing(self) -> None:
        """Over 40 honest runs the mean area is 1/2, and few p are small."""
        runs = [audited(seed, n=90, count=6) for seed in range(40)]
        found = [
            shadow_figures(of.phi, is_forget=of.is_forget, shadows=of.shadows, rng=np.random.default_rng(0))
            for of in runs
        ]
        areas = [of["ulira"]["auc"] for of in found if of is not None]
        assert len(areas) == 40
        assert np.mean(areas) == pytest.approx(0.5, abs=4 * np.std(areas) / 40**0.5)
        assert sum(of["ulira"]["p"] < 0.05 for of in found if of is not None) <= 6

    def test_rows_without_shadows_of_both_kinds_are_counted_and_left_out(self) -> None:
        """A row that no shadow unlearned has no ratio."""
        of = audited(2, n=60)
        unlearned = of.shadows.unlearned.copy()
        unlearned[:, [3, 50]] = False
        found = shadow_figures(
            of.phi,
            is_forget=of.is_forget,
            shadows=replace(of.shadows, unlearned=unlearned),
            rng=np.random.default_rng(0),
        )
        assert found is not None
        assert (found["rows"], found["left_out"]) == ({"forget": 19, "holdout": 39}, 2)

    def test_without_rows_that_were_unlearned_the_tail_is_left(self) -> None:
        """Where no shadow may have seen F: the attack that needs none, on all rows, as before."""
        of = audited(1, trace=2.0)
        never = replace(of.shadows, unlearned=np.zeros_like(of.shadows.unlearned))
        found, both = (
            shadow_figures(of.phi, is_forget=of.is_forget, shadows=shadows, rng=np.random.default_rng(0))
            for shadows in (never, of.shadows)
        )
        assert found is not None
        assert both is not None
        assert found["ulira"] is None
        assert found["offline"]["auc"] == both["offline"]["auc"]
        assert found["rows"] == {"forget": 100, "holdout": 200}
        only_holdout = replace(of.shadows, unlearned=of.shadows.unlearned & ~of.is_forget)
        half = shadow_figures(
            of.phi, is_forget=of.is_forget, shadows=only_holdout, rng=np.random.default_rng(0)
        )
        assert half is not None
        assert half["ulira"] is None

    @pytest.mark.parametrize("broken", ["phi", "forget", "shadows"])
    def test_no_figure(self, broken: str) -> None:
        """Phi that is not finite, no F, or a single shadow."""
        of = audited(3, n=60, count=1 if broken == "shadows" else 8)
        phi = np.where(broken == "phi", np.nan, of.phi)
        is_forget = of.is_forget & (broken != "forget")
        found = shadow_figures(phi, is_forget=is_forget, shadows=of.shadows, rng=np.random.default_rng(0))
        assert found is None


@pytest.mark.parametrize(
    ("unlearned", "out", "fault"),
    [((2, 4), (2, 3), r"\[N, n\]"), ((2, 3), (2, 3), "never trained on")],
)
def test_shadows_that_do_not_fit(unlearned: tuple[int, int], out: tuple[int, int], fault: str) -> None:
    """Shapes must agree, and a row is not two things in one shadow."""
    with pytest.raises(ValueError, match=fault):
        Shadows(np.zeros((2, 3)), np.ones(unlearned, dtype=bool), np.ones(out, dtype=bool))
