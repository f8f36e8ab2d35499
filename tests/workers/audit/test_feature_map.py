from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from workers.audit.feature_map import UMAP, feature_map
from workers.audit.outputs import FloatArray, IntArray, Outputs, SetName

needs_umap = pytest.mark.skipif(UMAP is None, reason="the extra `umap` is not installed")


def known(features: FloatArray | None, labels: IntArray) -> Outputs:
    """Outputs of which only features and labels matter."""
    return Outputs(np.zeros((len(labels), 1_000)), labels, features)


def features(seed: int, n: int, *, away: float = 0.0, d: int = 6) -> FloatArray:
    scales = np.array([5.0, 3.0, *[0.5] * (d - 2)])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]  # so that no axis is a direction
    rows: FloatArray = np.random.default_rng(seed).normal(size=(n, d)) * scales @ turn + away
    return rows


def outputs(seed: int, n: int, *, away: float = 0.0, d: int = 6) -> Outputs:
    return known(features(seed, n, away=away, d=d), np.random.default_rng(seed).integers(0, 4, n))


def three(n: int = 40) -> dict[SetName, Outputs]:
    return {
        "retain": outputs(1, 3 * n),
        "forget": outputs(2, n, away=1.0),
        "holdout": outputs(3, n),
        "test": known(None, np.arange(3)),  # not shown
    }


def draw() -> np.random.Generator:
    return np.random.default_rng(5)


def coordinates(found: dict[str, list[list[float]]]) -> FloatArray:
    return np.array([point[:2] for part in found.values() for point in part])


class TestPca:
    def test_agrees_with_the_eigenvectors_of_the_covariance(self) -> None:
        """Projections and shares of the variance, each axis turned so that its largest entry is positive."""
        whole = np.concatenate([features(1, 120), features(2, 40, away=1.0), features(3, 40)])
        variances, directions = np.linalg.eigh(np.cov(whole.T))
        first = directions[:, [-1, -2]]
        first = first * np.sign(first[np.abs(first).argmax(axis=0), [0, 1]])
        found = feature_map(three(), rng=draw(), method="pca")["feature_map"]
        assert found["method"] == "pca"
        expected = (whole - whole.mean(axis=0)) @ first
        np.testing.assert_allclose(coordinates(found["points"]), expected, rtol=6e-5, atol=1e-8)
        shares = variances[[-1, -2]] / variances.sum()
        assert found["explained"] == pytest.approx(shares.tolist(), rel=1e-9)

    def test_rows_keep_their_sets_labels_and_order(self) -> None:
        """One point a row, with its own label; an empty set has none."""
        sets = three() | {"holdout": outputs(3, 0)}
        points = feature_map(sets, rng=draw(), method="pca")["feature_map"]["points"]
        assert list(points) == ["retain", "forget", "holdout"]
        for name in ("retain", "forget"):
            assert [label for _, _, label in points[name]] == sets[name].labels.tolist()
        assert points["holdout"] == []
        assert all(isinstance(value, float | int) for value in points["forget"][0])

    def test_is_not_mirrored_by_another_order_of_rows(self) -> None:
        """The same rows in reverse are at the same places."""
        rows, labels = features(1, 60), np.arange(60)
        there, back = (
            feature_map({"retain": known(rows[order], labels)}, rng=draw(), method="pca")["feature_map"]
            for order in (labels, labels[::-1])
        )
        np.testing.assert_allclose(
            coordinates(there["points"]), coordinates(back["points"])[::-1], rtol=2e-4, atol=1e-6
        )

    def test_takes_a_sample_of_many_rows(self) -> None:
        """At most so many of a set, drawn by the generator, and each with its own label."""
        rows = features(0, 300)
        numbered: dict[SetName, Outputs] = {"retain": known(rows, np.arange(300)), "forget": outputs(2, 7)}
        first, again = (feature_map(numbered, rng=draw(), rows=50, method="pca") for _ in range(2))
        other = feature_map(numbered, rng=np.random.default_rng(6), rows=50, method="pca")
        assert first == again != other
        points = first["feature_map"]["points"]
        chosen = [label for _, _, label in points["retain"]]
        assert (len(chosen), len(set(chosen)), len(points["forget"])) == (50, 50, 7)
        sampled = numbered | {"retain": known(rows[chosen], np.array(chosen))}
        taken = feature_map(sampled, rng=draw(), method="pca")
        assert taken == first


@pytest.mark.parametrize(
    "rows",
    [
        None,
        np.array([[1.0, np.nan], [0.0, 1.0]]),
        np.ones((5, 3)) * [1.0, 2.0, 3.0],
        np.empty((0, 3)),
        np.arange(4.0)[:, None],
    ],
)
def test_nothing_to_show(rows: FloatArray | None) -> None:
    """No features, not finite, all the same, no rows, or a single feature: no map."""
    part = known(rows, np.arange(4 if rows is None else len(rows)))
    assert feature_map({"retain": part}, rng=draw(), method="pca") == {"feature_map": None}


def test_a_set_without_features() -> None:
    """One is enough for there to be no map."""
    sets = three() | {"forget": known(None, np.arange(3))}
    assert feature_map(sets, rng=draw()) == {"feature_map": None}


def test_few_rows_have_no_neighbourhoods() -> None:
    """Whatever is installed, a handful of rows is shown by PCA."""
    found = feature_map({"retain": outputs(1, 9), "forget": outputs(2, 6)}, rng=draw(), method="umap")
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
    sets: dict[SetName, Outputs] = {
        "retain": known(rng.normal(size=(60, 10)) + centres[0], np.arange(60)),
        "forget": known(rng.normal(size=(60, 10)) + centres[1], np.arange(60)),
    }
    first, again = (feature_map(sets, rng=draw(), method="umap")["feature_map"] for _ in range(2))
    assert first == again
    assert first["explained"] is None
    retain, forget = (np.array(first["points"][name])[:, :2] for name in ("retain", "forget"))
    apart = np.linalg.norm(retain.mean(axis=0) - forget.mean(axis=0))
    assert apart > 2 * max(
        np.linalg.norm(part - part.mean(axis=0), axis=1).mean() for part in (retain, forget)
    )
