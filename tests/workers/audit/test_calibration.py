"""Calibrated attacks on made-up phi: hardness of the row, plus chance, plus what the network remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from scipy import stats

from workers.audit.calibration import (
    Referenced,
    calibrated_figures,
    held_out,
    most_memorised,
    prediction_interval,
    spread,
)
from workers.audit.features import margins
from workers.audit.outputs import FloatArray, SetName, Sets
from workers.audit.statistics import Scores, auc_p_value

MakeNetwork = Callable[..., Sets]


def hardness(seed: int, n: int) -> FloatArray:
    return np.random.default_rng((seed, 1)).normal(0.0, 5.0, n)


def referenced(seed: int, *, n: int, k: int, shift: float = 0.0, noise: float = 1.0) -> Referenced:
    rng, base = np.random.default_rng((seed, 0)), hardness(seed, n)
    return Referenced(base + shift + noise * rng.normal(size=n), base + rng.normal(size=(k, n)))


def wins(positives: FloatArray, negatives: FloatArray) -> float:
    """The AUC by counting pairs."""
    pairs = [(a > b) + (a == b) / 2 for a, b in product(positives.tolist(), negatives.tolist())]
    return float(np.mean(pairs))


class TestReferenced:
    def test_holds_the_margins_of_one_set(self, make_network: MakeNetwork) -> None:
        """phi of the network and, stacked, of the references; centred by their mean."""
        network, references = make_network(1), [make_network(2), make_network(3)]
        found = Referenced.of(network, references, "forget")
        assert found is not None
        expected = [margins(sets["forget"]) for sets in (network, *references)]
        np.testing.assert_array_equal(found.network, expected[0])
        np.testing.assert_array_equal(found.references, np.stack(expected[1:]))
        np.testing.assert_allclose(found.centred, expected[0] - (expected[1] + expected[2]) / 2, atol=1e-12)

    def test_needs_references_and_finite_rows(self, make_network: MakeNetwork) -> None:
        """None without a reference, and where one of them diverged on a row."""
        broken = make_network(2)
        broken["forget"].logits[3, 0] = np.inf
        assert Referenced.of(make_network(1), [], "forget") is None
        assert Referenced.of(make_network(1), [make_network(3), broken], "forget") is None


class TestHeldOut:
    def test_agrees_with_counting_pairs(self) -> None:
        """Each reference centred by the others, and the share of all four models as far from 1/2."""
        forget, holdout = referenced(1, n=14, k=3, shift=0.4), referenced(2, n=17, k=3)
        found = held_out(forget, holdout)

        def areas(f: Sequence[FloatArray], h: Sequence[FloatArray]) -> list[float]:
            def centred(models: Sequence[FloatArray], i: int) -> FloatArray:
                others = [model for j, model in enumerate(models) if j != i]
                result: FloatArray = models[i] - np.mean(others, axis=0)
                return result

            return [wins(centred(f, i), centred(h, i)) for i in range(len(f))]

        expected = areas(list(forget.references), list(holdout.references))
        assert found["aucs"] == pytest.approx(expected, abs=1e-12)
        models = [[rows.network, *rows.references] for rows in (forget, holdout)]
        distances = [abs(value - 0.5) for value in areas(*models)]
        assert found["rank_p"] == np.mean([d >= distances[0] - 1e-9 for d in distances])

    def test_rank_p_is_never_below_one_in_all_models(self) -> None:
        """What is remembered throughout is the most unusual of five models; of two models none is more so."""
        assert held_out(referenced(1, n=50, k=4, shift=9), referenced(2, n=50, k=4))["rank_p"] == 0.2
        assert held_out(referenced(1, n=50, k=2, shift=0), referenced(2, n=50, k=2))["rank_p"] >= 1 / 3

    def test_rank_p_is_uniform_over_retrained_networks(self) -> None:
        """One more network like the references has each of five ranks a fifth of the time."""
        ranks = [
            held_out(referenced(2 * i, n=30, k=4), referenced(2 * i + 1, n=30, k=4))["rank_p"]
            for i in range(200)
        ]
        counts = [sum(abs(rank - share) < 1e-9 for rank in ranks) for share in (0.2, 0.4, 0.6, 0.8, 1.0)]
        assert sum(counts) > 190  # ties are rare
        assert stats.chisquare(counts).pvalue > 1e-3

    @pytest.mark.parametrize(("k", "factor"), [(2, 15.6), (3, 4.97), (4, 3.56), (8, 2.51), (16, 2.20)])
    def test_prediction_interval(self, k: int, factor: float) -> None:
        """The published factors of the standard deviation, and the mean in the middle."""
        values = np.random.default_rng(0).normal(size=k).tolist()
        low, high = prediction_interval(values)
        assert (low + high) / 2 == pytest.approx(np.mean(values), abs=1e-12)
        assert (high - low) / 2 / np.std(values, ddof=1) == pytest.approx(factor, rel=5e-3)


class TestSpread:
    def test_hand_worked(self) -> None:
        """References 0 and 2, so each is 2 from the other: a network at 5 is 5 and 3 away, twice as far."""
        forget = Referenced(np.array([5.0]), np.array([[0.0], [2.0]]))
        holdout = Referenced(np.array([1.0, 1.0]), np.array([[0.0, 0.0], [2.0, 0.0]]))
        # H: (1 + 1 + 1 + 1) / 4 = 1 against (2 + 0 + 2 + 0) / 4 = 1.
        assert spread(forget, holdout) == {"forget": 2.0, "holdout": 1.0, "quotient": 2.0}

    @pytest.mark.parametrize("k", [2, 4, 8])
    def test_a_retrained_network_has_one(self, k: int) -> None:
        """Whatever the number of references: F, H and their quotient are 1 but for chance."""
        found = spread(referenced(1, n=20_000, k=k), referenced(2, n=20_000, k=k))
        assert [found["forget"], found["holdout"], found["quotient"]] == pytest.approx([1.0] * 3, abs=0.03)

    def test_drift_is_told_from_a_leak(self) -> None:
        """A network noisier everywhere has a large H and a quotient of 1; one noisier on F alone has not."""
        noisy, usual = (referenced(1, k=4, n=20_000, noise=noise) for noise in (3.0, 1.0))
        drift = spread(noisy, referenced(2, k=4, n=20_000, noise=3.0))
        leak = spread(noisy, usual)
        assert drift["holdout"] == pytest.approx(drift["forget"], rel=0.05)
        assert drift["holdout"] is not None
        assert drift["holdout"] > 2
        assert drift["quotient"] == pytest.approx(1.0, abs=0.05)
        assert leak["quotient"] is not None
        assert leak["quotient"] > 2

    def test_references_that_do_not_differ(self) -> None:
        """There is no unit to measure in, so there is no ratio."""
        same = Referenced(np.arange(3.0), np.ones((2, 3)))
        assert spread(same, same) == {"forget": None, "holdout": None, "quotient": None}


class TestMostMemorised:
    def test_takes_the_rows_the_original_knew_best(self) -> None:
        """Two of twenty rows are chosen by the first reference and centred by the second."""
        forget = Referenced(np.arange(20.0), np.stack([np.zeros(20), np.full(20, 3.0)]))
        holdout = Referenced(np.array([5.0, 9.0, 30.0]), np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
        original = np.zeros(20)
        original[[4, 12]] = 7.0
        found = most_memorised(forget, holdout, original)
        # 4 - 3 and 12 - 3 against 5 - 1, 9 - 1 and 30 - 1: two of six pairs are won.
        assert (found["rows"], found["auc"]) == (2, pytest.approx(2 / 6, abs=1e-12))

    def test_an_honest_network_does_not_seem_to_remember_them(self) -> None:
        """Over 60 retrained networks the mean area is 1/2; with one set of references for both it is not."""
        split, same = [], []
        for i in range(60):
            forget, holdout = referenced(2 * i, n=400, k=4), referenced(2 * i + 1, n=400, k=4)
            original = hardness(2 * i, 400) + 2 + np.random.default_rng(1_000 + i).normal(size=400)
            split.append(most_memorised(forget, holdout, original)["auc"])
            twice = (Referenced(of.network, np.repeat(of.references, 2, axis=0)) for of in (forget, holdout))
            same.append(most_memorised(next(twice), next(twice), original)["auc"])
        assert np.mean(split) == pytest.approx(0.5, abs=4 * np.std(split) / 60**0.5)
        assert np.mean(same) > 0.53


class TestCalibratedFigures:
    def test_centring_shows_what_hardness_hides(self, make_network: MakeNetwork) -> None:
        """An original that is a little surer of F is found by the centred attack; a retrained one is not."""
        original, references = make_network(1, forget=3.0), [make_network(seed) for seed in (2, 3, 4)]
        before = calibrated_figures(
            original, original=original, references=references, rng=np.random.default_rng(0)
        )
        after = calibrated_figures(
            make_network(5), original=original, references=references, rng=np.random.default_rng(0)
        )
        assert before is not None
        assert after is not None
        assert before["centred"]["low"] > 0.5
        assert before["spread_auc"]["low"] > 0.5
        assert before["held_out"]["rank_p"] == 0.25
        assert before["most_memorised"]["auc"] > before["centred"]["auc"] - 0.2
        assert after["centred"]["low"] < 0.5 < after["centred"]["high"]

    def test_one_reference_is_enough_for_the_centred_attack(self, make_network: MakeNetwork) -> None:
        """What needs a second one is None."""
        network, reference = make_network(1), make_network(2)
        pair: tuple[SetName, SetName] = ("forget", "holdout")
        found = calibrated_figures(
            network, original=network, references=[reference], rng=np.random.default_rng(0)
        )
        assert found is not None
        assert found["held_out"] is found["spread"] is found["most_memorised"] is None
        centred = [margins(network[name]) - margins(reference[name]) for name in pair]
        assert found["centred"]["auc"] == pytest.approx(wins(*centred), abs=1e-12)

    def test_needs_references(self, make_network: MakeNetwork) -> None:
        """None without any."""
        network = make_network(1)
        assert (
            calibrated_figures(network, original=network, references=[], rng=np.random.default_rng(0)) is None
        )


def test_centred_p_is_exact_for_a_network_like_the_references() -> None:
    """Of 200 retrained networks about one in twenty has p below .05."""
    found = []
    for i in range(200):
        forget, holdout = referenced(2 * i, n=25, k=2), referenced(2 * i + 1, n=30, k=2)
        found.append(auc_p_value(Scores(forget.centred, holdout.centred)))
    assert 0.015 < np.mean(np.array(found) < 0.05) < 0.095
