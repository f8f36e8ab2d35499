from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from workers.audit.feature_map import UMAP, Labelled, feature_map
from workers.audit.outputs import FloatArray

needs_umap = pytest.mark.skipif(UMAP is None, reason="the extra `umap` is not installed")


def labelled(seed: int, n: int, *, away: float = 0.0, d: int = 6) -> Labelled:
    rng = np.random.default_rng(seed)
    scales = np.array([5.0, 3.0, *[0.5] * (d - 2)])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]  # so that no axis is a direction
    return rng.normal(size=(n, d)) * scales @ turn + away, rng.integers(0, 4, n)


def three(n: int = 40) -> dict[str, Labelled | None]:
    return {
        "retain": labelled(1, 3 * n),
        "forget": labelled(2, n, away=1.0),
        "holdout": labelled(3, n),
    }


def draw() -> np.random.Generator:
    return np.random.default_rng(5)


def coordinates(found: dict[str, list[list[float]]]) -> FloatArray:
    return np.array([point[:2] for part in found.values() for point in part])


class TestPca:
    def test_agrees_with_the_eigenvectors_of_the_covariance(self) -> None:
        """Projections and shares of the variance, each axis turned so that its largest entry is positive."""
        sets = three()
        features = np.concatenate([part[0] for part in sets.values() if part is not None])
        variances, directions = np.linalg.eigh(np.cov(features.T))
        first = directions[:, [-1, -2]]
        first = first * np.sign(first[np.abs(first).argmax(axis=0), [0, 1]])
        found = feature_map(sets, rng=draw(), method="pca")["feature_map"]
        assert found["method"] == "pca"
        expected = (features - features.mean(axis=0)) @ first
        np.testing.assert_allclose(coordinates(found["points"]), expected, rtol=6e-5, atol=1e-8)
        shares = variances[[-1, -2]] / variances.sum()
        assert found["explained"] == pytest.approx(shares.tolist(), rel=1e-9)

    def test_rows_keep_their_sets_labels_and_order(self) -> None:
        """One point a row, with its own label; an empty set has none."""
        sets = three() | {"holdout": labelled(3, 0)}
        points = feature_map(sets, rng=draw(), method="pca")["feature_map"]["points"]
        for name in ("retain", "forget"):
            part = sets[name]
            assert part is not None
            assert [label for _, _, label in points[name]] == part[1].tolist()
        assert points["holdout"] == []
        assert all(isinstance(value, float | int) for value in points["forget"][0])

    def test_is_not_mirrored_by_another_order_of_rows(self) -> None:
        """The same rows in reverse are at the same places."""
        features, labels = labelled(1, 60)
        one, other = (
            feature_map({"retain": part}, rng=draw(), method="pca")["feature_map"]["points"]["retain"]
            for part in ((features, labels), (features[::-1], labels[::-1]))
        )
        np.testing.assert_allclose(np.array(one), np.array(other[::-1]), rtol=2e-4, atol=1e-6)

    def test_takes_a_sample_of_many_rows(self) -> None:
        """At most so many of a set, drawn by the generator, and each with its own label."""
        features = np.random.default_rng(0).normal(size=(300, 4))
        numbered = {"retain": (features, np.arange(300)), "forget": labelled(2, 7, d=4)}
        first, again = (feature_map(numbered, rng=draw(), rows=50, method="pca") for _ in range(2))
        other = feature_map(numbered, rng=np.random.default_rng(6), rows=50, method="pca")
        assert first == again != other
        points = first["feature_map"]["points"]
        chosen = [label for _, _, label in points["retain"]]
        assert (len(chosen), len(set(chosen)), len(points["forget"])) == (50, 50, 7)
        taken = feature_map(
            {"retain": (features[chosen], np.array(chosen)), "forget": numbered["forget"]},
            rng=draw(),
            method="pca",
        )
        assert taken == first


@pytest.mark.parametrize(
    "part",
    [
        None,
        (np.array([[1.0, np.nan], [0.0, 1.0]]), np.array([0, 1])),
        (np.ones((5, 3)) * [1.0, 2.0, 3.0], np.zeros(5, dtype=np.int64)),
        (np.empty((0, 3)), np.empty(0, dtype=np.int64)),
        (np.arange(4.0)[:, None], np.arange(4)),
    ],
)
def test_nothing_to_show(part: Labelled | None) -> None:
    """No features, not finite, all the same, no rows, or a single feature: no map."""
    assert feature_map({"retain": part}, rng=draw(), method="pca") == {"feature_map": None}


def test_another_set_without_features() -> None:
    """One set without features is enough for there to be no map."""
    assert feature_map(three() | {"forget": None}, rng=draw()) == {"feature_map": None}


def test_few_rows_have_no_neighbourhoods() -> None:
    """Whatever is installed, a handful of rows is shown by PCA."""
    found = feature_map({"retain": labelled(1, 9), "forget": labelled(2, 6)}, rng=draw(), method="umap")
    assert found["feature_map"]["method"] == "pca"


def test_the_map_takes_umap_where_it_is_installed() -> None:
    """And PCA otherwise; what is not used is not loaded."""
    found = feature_map(three(12), rng=draw())["feature_map"]
    assert found["method"] == ("pca" if UMAP is None else "umap")
    program = "import sys, workers.audit.feature_map; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@needs_umap
def test_a_umap_keeps_neighbours_together() -> None:
    """Two clouds far apart stay apart, and the same seed gives the same map."""
    rng = np.random.default_rng(0)
    centres = np.eye(2, 10) * 8
    sets: dict[str, Labelled | None] = {
        name: (rng.normal(size=(60, 10)) + centre, np.zeros(60, dtype=np.int64))
        for name, centre in zip(("retain", "forget"), centres, strict=True)
    }
    first, again = (feature_map(sets, rng=draw(), method="umap")["feature_map"] for _ in range(2))
    assert first == again
    assert first["explained"] is None
    retain, forget = (np.array(first["points"][name])[:, :2] for name in ("retain", "forget"))
    apart = np.linalg.norm(retain.mean(axis=0) - forget.mean(axis=0))
    assert apart > 2 * max(
        np.linalg.norm(part - part.mean(axis=0), axis=1).mean() for part in (retain, forget)
    )
