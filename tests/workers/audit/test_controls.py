from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from workers.audit.controls import blind_figures, retained_figures
from workers.audit.features import margins
from workers.audit.matching import match_classes
from workers.audit.outputs import FloatArray, SetName, Sets

MakeNetwork = Callable[..., Sets]


class TestRetained:
    def test_agrees_with_scikit_learn_on_rows_mixed_as_the_holdout(self, make_network: MakeNetwork) -> None:
        """Both areas are roc_auc_score's on the matched rows of R, and the difference is theirs."""
        networks = make_network(1, retain=1.5), make_network(2, retain=2.5)
        found = retained_figures(*networks, rng=np.random.default_rng(0))
        assert found is not None
        holdout, retain = (networks[0][name] for name in ("holdout", "retain"))
        rows = match_classes(holdout.labels, retain.labels, rng=np.random.default_rng(0)).rows
        truth = np.repeat([1, 0], [len(rows), len(holdout)])
        before, after = (
            roc_auc_score(
                truth, np.concatenate([margins(sets["retain"].take(rows)), margins(sets["holdout"])])
            )
            for sets in networks
        )
        assert (found["original"]["auc"], found["unlearned"]["auc"]) == pytest.approx(
            (before, after), abs=1e-9
        )
        assert found["difference"]["difference"] == pytest.approx(after - before, abs=1e-9)
        assert found["difference"]["low"] > 0
        assert (found["n"], found["class_distance"] <= 0.1) == (len(rows), True)

    @pytest.mark.parametrize("name", ["retain", "holdout"])
    def test_needs_finite_outputs_of_both_networks(self, make_network: MakeNetwork, name: SetName) -> None:
        """NaN after unlearning, and there is no figure."""
        unlearned = make_network(2)
        unlearned[name].logits[:] = np.nan
        assert retained_figures(make_network(1), unlearned, rng=np.random.default_rng(0)) is None

    def test_needs_rows(self, make_network: MakeNetwork) -> None:
        """Without a holdout there is nothing to compare with."""
        network = make_network(1)
        empty = {**network, "holdout": network["holdout"].take(np.empty(0, dtype=np.int64))}
        assert retained_figures(empty, empty, rng=np.random.default_rng(0)) is None


def looks(seed: int, n: int, shift: float = 0.0) -> FloatArray:
    return np.random.default_rng(seed).normal(shift, 1.0, (n, 3)) * [1.0, 10.0, 0.1]


class TestBlind:
    def test_agrees_with_the_parts_put_together_by_hand(self) -> None:
        """Halves, standardised columns, a balanced regression, and the area on the other halves."""
        forget, holdout = looks(1, 60, 0.5), looks(2, 101)
        found = blind_figures(forget, holdout, rng=np.random.default_rng(3))
        assert found is not None
        rng = np.random.default_rng(3)
        f, h = forget[rng.permutation(60)], holdout[rng.permutation(101)]
        learned, tested = np.concatenate([f[:30], h[:50]]), np.concatenate([f[30:], h[50:]])
        learned, tested = ((part - learned.mean(axis=0)) / learned.std(axis=0) for part in (learned, tested))
        fitted = LogisticRegression(max_iter=1_000, class_weight="balanced").fit(learned, [1] * 30 + [0] * 50)
        expected = roc_auc_score([1] * 30 + [0] * 51, fitted.decision_function(tested))
        assert found["auc"] == pytest.approx(expected, abs=1e-9)
        assert (found["forget"], found["holdout"]) == (60, 101)

    def test_sees_a_difference_in_looks(self) -> None:
        """A shift of one standard deviation in each column is found, with an interval above 1/2."""
        found = blind_figures(looks(1, 100, 1.0), looks(2, 200), rng=np.random.default_rng(0))
        assert found is not None
        assert found["low"] > 0.7

    def test_is_seldom_wrong_about_rows_of_one_source(self) -> None:
        """Of 60 fair pairs of F and H few have an interval wholly above 1/2."""
        found = [
            blind_figures(looks(2 * i, 40), looks(2 * i + 1, 60), rng=np.random.default_rng(i))
            for i in range(60)
        ]
        assert sum(of is not None and of["low"] > 0.5 for of in found) <= 5

    def test_rows_that_all_look_the_same(self) -> None:
        """Constant columns tell nothing: an area of 1/2 with p = 1."""
        found = blind_figures(np.ones((9, 2)), np.ones((8, 2)), rng=np.random.default_rng(0))
        assert found is not None
        assert (found["auc"], found["p"]) == (0.5, 1.0)

    @pytest.mark.parametrize(
        ("forget", "holdout"), [(looks(1, 3), looks(2, 50)), (looks(1, 50), np.full((50, 3), np.nan))]
    )
    def test_nothing_to_learn_from(self, forget: FloatArray, holdout: FloatArray) -> None:
        """Too few rows, or looks that are not finite, give no figure."""
        assert blind_figures(forget, holdout, rng=np.random.default_rng(0)) is None
