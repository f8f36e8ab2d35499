"""The customary attacks against scikit-learn, the definition over all thresholds, and a published recipe."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.svm import SVC

from workers.audit.customary import best_threshold, customary_figures, draw_halves, loss_regression
from workers.audit.features import FEATURES, entropy
from workers.audit.membership import SVC_ROWS
from workers.audit.outputs import FloatArray, Outputs, SetName, Sets
from workers.audit.statistics import Scores

MakeNetwork = Callable[..., Sets]
tied_scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12).map(np.array)


def balanced_accuracy(scores: Scores, threshold: float) -> float:
    truth = np.repeat([1, 0], [len(part) for part in scores])
    return float(balanced_accuracy_score(truth, np.concatenate(scores) >= threshold))


class TestBestThreshold:
    @given(st.builds(Scores, tied_scores, tied_scores))
    def test_no_threshold_does_better(self, scores: Scores) -> None:
        """Against every score and infinity; of equally good ones it separates as the highest does."""
        candidates = sorted({*np.concatenate(scores).tolist(), np.inf}, reverse=True)
        values = [balanced_accuracy(scores, candidate) for candidate in candidates]
        expected = next(t for t, value in zip(candidates, values, strict=True) if value > max(values) - 1e-12)
        found = best_threshold(scores)
        together = np.concatenate(scores)
        np.testing.assert_array_equal(together >= found, together >= expected)

    def test_lies_half_way(self) -> None:
        """Between 2 and 5; and at the upper of two neighbours that have no number between them."""
        assert best_threshold(Scores(np.array([5.0, 6.0]), np.array([1.0, 2.0]))) == 3.5
        assert best_threshold(Scores(np.array([np.nextafter(1, 2)]), np.ones(1))) == np.nextafter(1, 2)

    def test_equal_scores_call_nobody_a_member(self) -> None:
        """Where nothing tells them apart there is no threshold."""
        assert best_threshold(Scores(np.ones(3), np.ones(5))) == np.inf


class TestDrawHalves:
    def test_classes_are_as_frequent_on_both_sides_and_no_row_is_used_twice(self) -> None:
        """Four draws with the same class counts, learned and tested rows apart."""
        rng = np.random.default_rng(0)
        retain, test = rng.choice(4, 900, p=[0.7, 0.1, 0.1, 0.1]), rng.choice(4, 300)
        halves = draw_halves(retain, test, rng)
        counts = [
            np.bincount(labels[rows]).tolist()
            for labels, rows in (
                (retain, halves.members),
                (test, halves.non_members),
                (retain, halves.tested_members),
                (test, halves.tested_non_members),
            )
        ]
        assert counts == [counts[0]] * 4
        assert not set(halves.members) & set(halves.tested_members)
        assert not set(halves.non_members) & set(halves.tested_non_members)

    def test_is_capped_and_repeatable(self) -> None:
        """2,000 rows a side in all, the same for the same seed."""
        labels = np.random.default_rng(1).integers(0, 10, 9_000)
        first, again = (draw_halves(labels, labels, np.random.default_rng(2)) for _ in range(2))
        assert len(first.members) + len(first.tested_members) == SVC_ROWS
        np.testing.assert_array_equal(first.members, again.members)

    @pytest.mark.parametrize(("retain", "test"), [([], []), ([0, 0], []), ([0, 1], [0, 1]), ([0, 0], [1, 1])])
    def test_nothing_to_learn_from(self, retain: list[int], test: list[int]) -> None:
        """Without two rows of a class on both sides the halves are empty."""
        labels = [np.array(part, dtype=np.int64) for part in (retain, test)]
        halves = draw_halves(labels[0], labels[1], np.random.default_rng(0))
        assert len(halves.members) == len(halves.tested_non_members) == 0


class TestCustomaryFigures:
    @pytest.mark.parametrize("name", FEATURES)
    def test_svc_agrees_with_scikit_learn(self, make_network: MakeNetwork, name: str) -> None:
        """For each feature the share of F and the attacker's hits are those of an SVC run by hand."""
        network = make_network(1, retain=3.0)
        halves = draw_halves(network["retain"].labels, network["test"].labels, np.random.default_rng(0))
        columns = [
            FEATURES[name](part).reshape(len(part), -1) for part in (*halves.of(network), network["forget"])
        ]
        attack = SVC(C=3.0, gamma="auto", random_state=0)
        attack.fit(np.concatenate(columns[:2]), np.repeat([1, 0], [len(part) for part in columns[:2]]))
        figures = customary_figures(network, halves, seed=0)
        assert figures is not None
        found = figures["svc"][name]
        assert found["called_non_member"] == (attack.predict(columns[4]) == 0).sum()
        hits = (attack.predict(columns[2]) == 1).sum() + (attack.predict(columns[3]) == 0).sum()
        assert (found["attacker"]["correct"], found["attacker"]["n"]) == (hits, 2 * len(halves.members))

    def test_threshold_is_that_of_the_learned_half(self, make_network: MakeNetwork) -> None:
        """Small entropy is taken for membership, from the threshold that the first half gives."""
        network = make_network(2, retain=3.0)
        halves = draw_halves(network["retain"].labels, network["test"].labels, np.random.default_rng(0))
        members, non_members, *_ = (-entropy(part) for part in halves.of(network))
        expected = -entropy(network["forget"]) < best_threshold(Scores(members, non_members))
        figures = customary_figures(network, halves, seed=0)
        assert figures is not None
        assert figures["threshold"]["entropy"]["called_non_member"] == expected.sum()
        assert set(figures["threshold"]) == set(FEATURES) - {"probabilities"}

    def test_an_attack_on_what_was_learned_by_heart_is_right(self, make_network: MakeNetwork) -> None:
        """R known by heart and T got wrong: the attacker errs on no row kept back, F goes with R."""
        network = make_network(3, retain=30.0, forget=30.0, test=-30.0)
        halves = draw_halves(network["retain"].labels, network["test"].labels, np.random.default_rng(0))
        figures = customary_figures(network, halves, seed=0)
        assert figures is not None
        for found in (figures["svc"]["confidence"], figures["threshold"]["modified_entropy"]):
            assert (found["attacker"]["rate"], found["rate"]) == (1.0, 0.0)

    def test_a_network_that_says_the_same_of_every_row(self, make_network: MakeNetwork) -> None:
        """All features tied: the attacker guesses, nobody is called a member, and nothing fails."""
        constant = {
            name: Outputs(np.zeros_like(of.logits), of.labels) for name, of in make_network(4).items()
        }
        halves = draw_halves(constant["retain"].labels, constant["test"].labels, np.random.default_rng(0))
        figures = customary_figures(constant, halves, seed=0)
        assert figures is not None
        assert figures["threshold"]["confidence"]["rate"] == 1.0
        assert figures["threshold"]["confidence"]["attacker"]["rate"] == 0.5

    @pytest.mark.parametrize("name", ["forget", "retain"])
    def test_needs_finite_outputs(self, make_network: MakeNetwork, name: SetName) -> None:
        """NaN in F or in the rows learned from, and there are no figures."""
        network = make_network(5)
        halves = draw_halves(network["retain"].labels, network["test"].labels, np.random.default_rng(0))
        network[name].logits[:, 0] = np.nan
        assert customary_figures(network, halves, seed=0) is None


class TestLossRegression:
    def test_agrees_with_the_starting_kit(self) -> None:
        """The kit's recipe on the same rows and the same seed."""
        rng = np.random.default_rng(0)
        forget, unseen = rng.exponential(0.5, 60), rng.exponential(1.0, 60)
        found = loss_regression(forget, unseen, rng=np.random.default_rng(7))
        assert found is not None
        same = np.random.default_rng(7)
        x = np.concatenate([same.choice(part, 60, replace=False) for part in (forget, unseen)])
        split = StratifiedShuffleSplit(n_splits=10, random_state=int(same.integers(2**31)))
        scores = cross_val_score(
            LogisticRegression(), x.reshape(-1, 1), [0] * 60 + [1] * 60, cv=split, scoring="accuracy"
        )
        assert found == {
            "accuracy": pytest.approx(scores.mean(), abs=1e-12),
            "deviation": pytest.approx(scores.std(), abs=1e-12),
            "n": 60,
        }

    @pytest.mark.parametrize(("forget", "accuracy"), [(np.full(40, 9.0), 1.0), (np.zeros(30), 0.5)])
    def test_the_extremes(self, forget: FloatArray, accuracy: float) -> None:
        """Losses all apart give 1, losses all equal give one half."""
        found = loss_regression(forget, np.zeros(90), rng=np.random.default_rng(0))
        assert found is not None
        assert (found["accuracy"], found["n"]) == (accuracy, len(forget))

    def test_too_few_rows(self) -> None:
        """A tenth of twice nine rows cannot hold one of each kind, so there is no figure; of 19 ten count."""
        some = loss_regression(np.zeros(19), np.ones(50), rng=np.random.default_rng(0))
        assert some is not None
        assert some["n"] == 10
        assert loss_regression(np.zeros(9), np.ones(50), rng=np.random.default_rng(0)) is None
