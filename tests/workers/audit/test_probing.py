from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, special, stats

from workers.audit.outputs import FloatArray, IntArray, Networks, Outputs, SetName, Sets
from workers.audit.probing import gap_figures, probe_figures, probe_hits
from workers.audit.statistics import excess_of_gaps

_SIZES: Mapping[SetName, int] = {"retain": 400, "forget": 90, "holdout": 120, "test": 5}
_LABELS = {
    name: np.random.default_rng(number).integers(0, 3, size)
    for number, (name, size) in enumerate(_SIZES.items())
}
_CENTRES = 1.5 * np.eye(3, 6)


@pytest.fixture
def featured() -> Callable[..., Sets]:
    """A network whose features lie around the centre of their class: `spread` on F, 1 on all other rows."""

    def make(seed: int, *, spread: float = 1.0) -> Sets:
        rng = np.random.default_rng(seed)
        sets: dict[SetName, Outputs] = {}
        for name, labels in _LABELS.items():
            wide = spread if name == "forget" else 1.0
            features = _CENTRES[labels] + wide * rng.normal(size=(len(labels), 6))
            sets[name] = Outputs(rng.normal(size=(len(labels), 3)), labels, features)
        return sets

    return make


def _fitted(features: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """Multinomial logistic regression with |W|^2 / 2 added to the summed loss, by a general optimiser."""
    rows, width = np.arange(len(labels)), features.shape[1]

    def loss(flat: FloatArray) -> float:
        weights, bias = flat[: 3 * width].reshape(3, width), flat[3 * width :]
        scores = features @ weights.T + bias
        fit = (special.logsumexp(scores, axis=1) - scores[rows, labels]).sum()
        return float(fit + (weights**2).sum() / 2)

    found = optimize.minimize(loss, np.zeros(3 * width + 3), method="BFGS", options={"gtol": 1e-3})
    return found.x[: 3 * width].reshape(3, width), found.x[3 * width :]


class TestHits:
    def test_agrees_with_a_regression_written_out(self, featured: Callable[..., Sets]) -> None:
        """Standardised by the learnt rows alone; row by row the same, but for one on the border."""
        sets, rows = featured(1), np.arange(0, 400, 2)
        learned = sets["retain"].take(rows)
        assert learned.features is not None
        mean, deviation = learned.features.mean(axis=0), learned.features.std(axis=0)
        weights, bias = _fitted((learned.features - mean) / deviation, learned.labels)
        hits = probe_hits(sets, rows)
        assert hits is not None
        for name, found in zip(("forget", "holdout"), hits, strict=True):
            part = sets[name]  # type: ignore[index]
            scores = (part.features - mean) / deviation @ weights.T + bias
            assert (found == (scores.argmax(axis=1) == part.labels)).mean() > 0.98
            assert 0.6 < found.mean() < 0.98

    def test_a_class_that_is_not_in_the_retain_set(self, featured: Callable[..., Sets]) -> None:
        """Its rows are all missed; where only one class is left, every row is called that."""
        sets = featured(1)
        for gone in ((2,), (1, 2)):
            rows = np.flatnonzero(~np.isin(_LABELS["retain"], gone))
            hits = probe_hits(sets, rows)
            assert hits is not None
            for name, found in zip(("forget", "holdout"), hits, strict=True):
                assert not found[np.isin(_LABELS[name], gone)].any()  # type: ignore[index]
                kept = found[~np.isin(_LABELS[name], gone)]  # type: ignore[index]
                assert kept.all() if len(gone) == 2 else kept.mean() > 0.7

    def test_features_that_separate_all_rows(self, featured: Callable[..., Sets]) -> None:
        """More of them than rows, as deep networks have: it ends without a warning, twice alike."""
        draw = np.random.default_rng(0)
        sets = {
            name: replace(part, features=draw.normal(size=(len(part), 900)))
            for name, part in featured(1).items()
        }
        first, second = (probe_hits(sets, np.arange(400)) for _ in range(2))
        assert first is not None
        assert second is not None
        assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))

    @pytest.mark.parametrize("name", ["retain", "forget", "holdout"])
    def test_needs_finite_features_of_every_set(self, featured: Callable[..., Sets], name: SetName) -> None:
        """Not known, not finite, or of no row: there is nothing to say."""
        sets = dict(featured(1))
        for features in (None, np.full((len(sets[name]), 6), np.nan)):
            assert probe_hits({**sets, name: replace(sets[name], features=features)}, np.arange(400)) is None
        rows = np.arange(0 if name == "retain" else 400)
        if name != "retain":
            sets[name] = sets[name].take(np.empty(0, dtype=np.int64))
        assert probe_hits(sets, rows) is None


def _hits(correct: int, n: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.arange(n) < correct


class TestGap:
    @pytest.mark.parametrize(
        ("first", "second", "low", "high"),
        [
            ((56, 70), (48, 80), 0.0524, 0.3339),
            ((9, 10), (3, 10), 0.1705, 0.8090),
            ((6, 7), (2, 7), 0.0582, 0.8062),
            ((5, 56), (0, 29), -0.0381, 0.1926),
            ((0, 10), (0, 20), -0.1611, 0.2775),
            ((10, 10), (0, 10), 0.6075, 1.0),
        ],
    )
    def test_published_intervals(
        self, first: tuple[int, int], second: tuple[int, int], low: float, high: float
    ) -> None:
        """Those of Newcombe's own table; the narrower one lies inside, and p is Fisher's."""
        found = gap_figures((_hits(*first), _hits(*second)))
        assert (found["low"], found["high"]) == pytest.approx((low, high), abs=6e-5)
        assert found["low"] < found["low90"] <= found["gap"] <= found["high90"] <= found["high"]
        assert found["gap"] == pytest.approx(first[0] / first[1] - second[0] / second[1])
        table = [[first[0], first[1] - first[0]], [second[0], second[1] - second[0]]]
        assert found["p"] == pytest.approx(stats.fisher_exact(table)[1])
        assert (found["forget"]["correct"], found["holdout"]["n"]) == (first[0], second[1])

    def test_no_difference_keeps_a_width(self) -> None:
        """All right on both sides is no certainty."""
        found = gap_figures((_hits(20, 20), _hits(20, 20)))
        assert (found["gap"], found["p"]) == (0, 1)
        assert found["low90"] < -0.05 < 0.05 < found["high90"]


class TestFigures:
    def test_sees_features_that_remember(self, featured: Callable[..., Sets]) -> None:
        """Features of F that lie closer to their centres: a gap, and an excess over three references."""
        references = tuple(featured(seed) for seed in (3, 4, 5))
        networks = Networks(featured(1, spread=0.3), featured(2, spread=0.3), references)
        found = probe_figures(networks, seed=0)
        for name in ("original", "unlearned"):
            assert found[name]["low"] > 0.02
            assert found[name]["p"] < 0.01
        assert found["reference"]["low"] < 0 < found["reference"]["high"]
        assert found["excess"]["low"] > 0.02
        assert found["excess"]["p"] < 0.01

    def test_sees_nothing_in_a_network_like_the_references(self, featured: Callable[..., Sets]) -> None:
        """Drawn as they are, it has no excess; and each figure is that of its parts."""
        references = tuple(featured(seed) for seed in (3, 4))
        networks = Networks(featured(1, spread=0.3), featured(2), references)
        found = probe_figures(networks, seed=0)
        assert found["excess"]["low"] < 0 < found["excess"]["high"]
        rows = np.random.default_rng(0).permutation(400)
        own, *others = (probe_hits(sets, rows) for sets in (networks.unlearned, *references))
        assert own is not None
        pairs = [hits for hits in others if hits is not None]
        assert found["unlearned"] == gap_figures(own)
        assert found["reference"] == gap_figures(pairs[0])
        stacked = np.array([pairs[0][0], pairs[1][0]]), np.array([pairs[0][1], pairs[1][1]])
        assert found["excess"] == excess_of_gaps(own, stacked).figures

    def test_what_is_missing(self, featured: Callable[..., Sets]) -> None:
        """Without a reference, or without the features of one, there is no excess."""
        blind: Sets = {name: replace(part, features=None) for name, part in featured(3).items()}
        found = probe_figures(Networks(featured(1), featured(2)), seed=0)
        assert set(found) == {"original", "unlearned", "excess"}
        assert found["excess"] is None
        found = probe_figures(Networks(blind, featured(2), (featured(4), blind)), seed=0)
        assert (found["original"], found["excess"]) == (None, None)
        assert found["reference"] is not None

    def test_of_many_rows_some_are_drawn(self, featured: Callable[..., Sets]) -> None:
        """2,000 of R at most, by the seed, the same for every network."""
        rows = np.random.default_rng(9).integers(0, 400, 2_500)
        network = featured(1)
        many = {**network, "retain": network["retain"].take(rows)}
        found = [probe_figures(Networks(many, many), seed=seed) for seed in (0, 0)]
        assert found[0] == found[1]
        assert found[0]["original"] == found[0]["unlearned"]
        chosen = np.random.default_rng(0).choice(2_500, 2_000, replace=False)
        hits = probe_hits(many, chosen)
        assert hits is not None
        assert found[0]["original"] == gap_figures(hits)
