from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.svm import SVC

from workers.audit.features import margins
from workers.audit.membership import SVC_ROWS, margin_scores, svc_draw, svc_non_members
from workers.audit.outputs import FloatArray, Outputs, Sets

MakeOutputs = Callable[..., Outputs]


def probabilities(outputs: Outputs) -> FloatArray:
    """p_y by the definition of softmax, in extended precision."""
    powers = np.exp(outputs.logits.astype(np.longdouble))
    share: FloatArray = powers[np.arange(len(outputs)), outputs.labels] / powers.sum(axis=1)
    return share.astype(np.float64)


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
    def test_agrees_with_scikit_learn(self, make_outputs: MakeOutputs) -> None:
        """The calls are those of an SVC run directly on softmax confidences."""
        members, non_members, forget = (make_outputs(seed, sure=seed) for seed in (4, 2, 3))
        x = np.concatenate([probabilities(members), probabilities(non_members)])[:, None]
        y = ["member"] * len(members) + ["other"] * len(non_members)
        attack = SVC(C=3.0, gamma="auto", kernel="rbf", random_state=0).fit(x, y)
        expected = attack.predict(probabilities(forget)[:, None]) == "other"
        called = svc_non_members(members=members, non_members=non_members, forget=forget)
        np.testing.assert_array_equal(called, expected)
        assert 0 < called.sum() < len(called)

    @pytest.mark.parametrize(("sure", "share"), [(30.0, 0.0), (-30.0, 1.0)])
    def test_direction(self, make_outputs: MakeOutputs, sure: float, share: float) -> None:
        """Rows known by heart are called members, rows always got wrong are called non-members."""
        called = svc_non_members(
            members=make_outputs(1, sure=30.0),
            non_members=make_outputs(2, sure=-3.0),
            forget=make_outputs(3, sure=sure),
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
