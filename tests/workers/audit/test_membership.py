from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.svm import SVC

from workers.audit.membership import SVC_ROWS, margin_scores, margins, svc_draw, svc_non_members
from workers.audit.outputs import FloatArray, Outputs, Sets


def probabilities(outputs: Outputs) -> FloatArray:
    """p_y by the definition of softmax, in extended precision."""
    powers = np.exp(outputs.logits.astype(np.longdouble))
    share: FloatArray = powers[np.arange(len(outputs)), outputs.labels] / powers.sum(axis=1)
    return share.astype(np.float64)


def random_outputs(seed: int, *, n: int = 200, sure: float = 0.0) -> Outputs:
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(scale=2.0, size=(n, 6)), rng.integers(0, 6, n)
    logits[np.arange(n), labels] += sure
    return Outputs(logits, labels)


class TestMargins:
    def test_is_the_log_odds_of_the_label(self) -> None:
        """phi is log p - log(1 - p) of the true label's probability."""
        outputs = random_outputs(1)
        p = probabilities(outputs)
        np.testing.assert_allclose(margins(outputs), np.log(p) - np.log1p(-p), rtol=1e-9, atol=1e-9)

    def test_does_not_saturate(self) -> None:
        """Where p rounds to 1 phi still tells how sure the network is: here 200 and 300 less log 2."""
        outputs = Outputs(np.array([[200.0, 0.0, 0.0], [0.0, 300.0, 0.0]]), np.array([0, 1]))
        assert margins(outputs).tolist() == pytest.approx([200 - np.log(2), 300 - np.log(2)], abs=1e-12)

    def test_ignores_a_common_shift_and_leaves_its_input_alone(self) -> None:
        """Adding a constant to a row's logits changes nothing, and the logits given are not written to."""
        outputs = random_outputs(2)
        before = outputs.logits.copy()
        shifted = Outputs(outputs.logits + 50.0, outputs.labels)
        np.testing.assert_allclose(margins(outputs), margins(shifted), atol=1e-11)
        np.testing.assert_array_equal(outputs.logits, before)


class TestMarginScores:
    def test_are_those_of_forget_and_holdout(self, make_network: Callable[..., Sets]) -> None:
        """The positives are F's margins and the negatives H's."""
        network = make_network(1)
        scores = margin_scores(network)
        assert scores is not None
        np.testing.assert_array_equal(scores.positives, margins(network["forget"]))
        np.testing.assert_array_equal(scores.negatives, margins(network["holdout"]))

    def test_need_finite_outputs(self, make_network: Callable[..., Sets]) -> None:
        """One NaN among the logits of F or H, and there is no attack."""
        network = make_network(1)
        network["holdout"].logits[3, 2] = np.nan
        assert margin_scores(network) is None


class TestSvc:
    def test_agrees_with_scikit_learn(self) -> None:
        """The calls are those of an SVC run directly on softmax confidences."""
        members, non_members, forget = (random_outputs(seed, sure=seed) for seed in (4, 2, 3))
        x = np.concatenate([probabilities(members), probabilities(non_members)])[:, None]
        y = ["member"] * len(members) + ["other"] * len(non_members)
        attack = SVC(C=3.0, gamma="auto", kernel="rbf", random_state=0).fit(x, y)
        expected = attack.predict(probabilities(forget)[:, None]) == "other"
        called = svc_non_members(members=members, non_members=non_members, forget=forget)
        np.testing.assert_array_equal(called, expected)
        assert 0 < called.sum() < len(called)

    @pytest.mark.parametrize(("sure", "share"), [(30.0, 0.0), (-30.0, 1.0)])
    def test_direction(self, sure: float, share: float) -> None:
        """Rows known by heart are called members, rows always got wrong are called non-members."""
        called = svc_non_members(
            members=random_outputs(1, sure=30.0),
            non_members=random_outputs(2, sure=-3.0),
            forget=random_outputs(3, sure=sure),
        )
        assert called.mean() == share

    @pytest.mark.parametrize(("retain", "test", "size"), [(50, 30, 30), (20, 30, 20), (9000, 8000, SVC_ROWS)])
    def test_draw_is_balanced_capped_and_repeatable(self, retain: int, test: int, size: int) -> None:
        """As many rows of R as of T, at most 2,000, none twice, and the same for the same seed."""
        for rows, limit in zip(svc_draw(retain, test, np.random.default_rng(5)), (retain, test), strict=True):
            assert len(np.unique(rows)) == len(rows) == size
            assert rows.max() < limit
        first, again = (svc_draw(retain, test, np.random.default_rng(5)) for _ in range(2))
        np.testing.assert_array_equal(first, again)

    def test_draw_is_not_the_first_rows(self) -> None:
        """Members are drawn from all of R, so its order does not choose them."""
        members, _ = svc_draw(9000, 100, np.random.default_rng(6))
        assert members.max() > 4500
