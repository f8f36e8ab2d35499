"""Tests and rates of an attack against scipy, scikit-learn, listing every split and every threshold."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_curve

from workers.audit.attack import attack_figures, auc_figures, permutation_p, tpr_at_fpr
from workers.audit.statistics import Scores, auc, auc_p_value

tied_scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=9).map(np.array)
score_pairs = st.builds(Scores, tied_scores, tied_scores)


def normal_scores(seed: int, *, m: int, n: int, shift: float) -> Scores:
    rng = np.random.default_rng(seed)
    return Scores(rng.normal(shift, 1.0, m), rng.normal(0.0, 1.0, n))


class TestPermutationP:
    @given(st.lists(st.integers(0, 3).map(float), min_size=3, max_size=8), st.integers(1, 2))
    def test_counts_every_split_of_few_rows(self, values: list[float], m: int) -> None:
        """The share of all splits whose AUC is at least as far from 1/2, ties included."""
        together = np.array(values)
        distances = []
        for chosen in combinations(range(len(values)), m):
            rest = np.setdiff1d(np.arange(len(values)), chosen)
            distances.append(abs(auc(Scores(together[list(chosen)], together[rest])) - 0.5))
        scores = Scores(together[:m], together[m:])
        expected = np.mean(np.array(distances) >= abs(auc(scores) - 0.5) - 1e-9)
        found = permutation_p(scores, rng=np.random.default_rng(0))
        assert found == pytest.approx(expected, abs=1e-12)

    def test_agrees_with_scipy(self) -> None:
        """All 1,287 splits of 5 and 8 rows, as scipy lists them."""
        scores = normal_scores(7, m=5, n=8, shift=0.8)
        expected = stats.permutation_test(
            scores, lambda f, h: abs(auc(Scores(f, h)) - 0.5), alternative="greater", vectorized=False
        )
        assert permutation_p(scores, rng=np.random.default_rng(0)) == pytest.approx(
            expected.pvalue, abs=1e-12
        )

    @pytest.mark.parametrize("shift", [0.0, 0.4])
    def test_drawn_splits_agree_with_the_exact_test(self, shift: float) -> None:
        """Of many rows it is within four standard errors of the p that enumeration gives."""
        scores = normal_scores(1, m=30, n=60, shift=shift)
        exact = auc_p_value(scores)
        found = permutation_p(scores, rng=np.random.default_rng(1), resamples=4_999)
        assert abs(found - exact) < 4 * (exact * (1 - exact) / 4_999) ** 0.5 + 1 / 5_000

    def test_is_never_zero_and_repeats_with_its_seed(self) -> None:
        """Perfect separation gives 1 in 2,000; the same generator state gives the same p."""
        scores = normal_scores(2, m=20, n=40, shift=9.0)
        assert permutation_p(scores, rng=np.random.default_rng(0)) == 1 / 2_000
        close = normal_scores(3, m=20, n=40, shift=0.3)
        first, again = (permutation_p(close, rng=np.random.default_rng(5)) for _ in range(2))
        assert first == again

    def test_a_single_row_has_an_exact_p(self) -> None:
        """The highest of 1,000 scores: it and the lowest are as far from the middle, so p is 2 in 1,000."""
        scores = Scores(np.array([1e4]), np.arange(999.0))
        assert permutation_p(scores, rng=np.random.default_rng(0)) == 2 / 1_000

    def test_constant_scores_show_nothing(self) -> None:
        """All scores equal, few or many: p is 1."""
        for m, n in ((1, 1), (40, 60)):
            assert permutation_p(Scores(np.zeros(m), np.zeros(n)), rng=np.random.default_rng(0)) == 1.0


class TestTprAtFpr:
    @given(
        st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=9),
        st.lists(st.integers(-4, 2).map(float), min_size=14, max_size=40),
        st.sampled_from([0.2, 0.25, 0.29, 0.5]),
    )
    def test_no_threshold_within_the_rate_detects_more(
        self, forget: list[float], holdout: list[float], share: float
    ) -> None:
        """Against every threshold there is, ties included."""
        scores = Scores(np.array(forget), np.array(holdout))
        thresholds = [*np.concatenate(scores), np.inf]
        within = [t for t in thresholds if np.mean(scores.negatives >= t) <= share + 1e-12]
        found = tpr_at_fpr(scores, share)
        assert found is not None
        assert found["detected"] == max(int((scores.positives >= t).sum()) for t in within)
        assert found["false_alarms"] <= share * len(holdout) + 1e-9

    def test_agrees_with_scikit_learn(self) -> None:
        """The largest TPR of scikit-learn's ROC curve whose FPR is at most 5%."""
        scores = normal_scores(4, m=300, n=410, shift=0.8)
        truth = np.repeat([1, 0], [300, 410])
        fpr, tpr, _ = roc_curve(truth, np.concatenate(scores), drop_intermediate=False)
        found = tpr_at_fpr(scores, 0.05)
        assert found is not None
        assert found["rate"] == pytest.approx(tpr[fpr <= 0.05].max(), abs=1e-12)
        expected = stats.binomtest(found["detected"], 300).proportion_ci(0.95, method="wilson")
        assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high), abs=1e-12)

    @pytest.mark.parametrize(("share", "needed"), [(0.05, 59), (0.01, 299), (0.001, 2_995)])
    def test_needs_enough_unseen_rows(self, share: float, needed: int) -> None:
        """As many as show the rate by no false alarm at 95%: one fewer, and there is no figure."""
        assert (1 - share) ** needed <= 0.05 < (1 - share) ** (needed - 1)
        assert tpr_at_fpr(Scores(np.ones(4), np.zeros(needed - 1)), share) is None
        assert tpr_at_fpr(Scores(np.ones(4), np.zeros(needed)), share) == {
            "detected": 4,
            "n": 4,
            "rate": 1.0,
            "low": pytest.approx(0.510, abs=5e-4),
            "high": 1.0,
            "false_alarms": 0,
            "unseen": needed,
        }

    def test_a_tie_with_unseen_rows_is_no_hit(self) -> None:
        """Where all scores are equal nobody is detected, rather than everybody."""
        found = tpr_at_fpr(Scores(np.zeros(5), np.zeros(100)), 0.05)
        assert found is not None
        assert (found["detected"], found["false_alarms"]) == (0, 0)


class TestAttackFigures:
    def test_kolmogorov_smirnov_is_the_largest_distance_of_the_shares(self) -> None:
        """The statistic by its definition, and scipy's exact p."""
        scores = normal_scores(5, m=40, n=70, shift=0.5)
        shares = [(part[:, None] <= np.concatenate(scores)).mean(axis=0) for part in scores]
        found = attack_figures(scores, rng=np.random.default_rng(0))["ks"]
        assert found["statistic"] == pytest.approx(np.abs(shares[0] - shares[1]).max(), abs=1e-12)
        assert found["p"] == pytest.approx(stats.ks_2samp(*scores, method="exact").pvalue, abs=1e-12)

    def test_an_exact_kolmogorov_smirnov_p_may_round_beyond_one(self) -> None:
        """One of seven rows differs: scipy gives up on the exact p, which is 1."""
        scores = Scores(np.zeros(7), np.array([0.0] * 6 + [1.0]))
        found = attack_figures(scores, rng=np.random.default_rng(0))["ks"]
        assert found == {"statistic": pytest.approx(1 / 7), "p": pytest.approx(1.0, abs=1e-4)}

    @given(score_pairs)
    def test_reversed_scores_give_the_other_direction(self, scores: Scores) -> None:
        """AUC and interval are mirrored at 1/2, and p stays."""
        one, other = auc_figures(scores), auc_figures(Scores(-scores.positives, -scores.negatives))
        assert one["auc"] == pytest.approx(other["reversed_auc"], abs=1e-12)
        assert (one["low"], one["high90"]) == pytest.approx((1 - other["high"], 1 - other["low90"]), abs=1e-9)
        assert one["p"] == pytest.approx(other["p"], abs=1e-12)

    @settings(max_examples=40)
    @given(score_pairs)
    def test_only_the_order_counts(self, scores: Scores) -> None:
        """Any strictly increasing map of the scores leaves every figure as it was."""
        mapped = Scores(*(np.exp(part / 2) - 7 for part in scores))
        first, second = (attack_figures(each, rng=np.random.default_rng(0)) for each in (scores, mapped))
        assert first == second

    def test_over_forgotten_rows_are_strangers(self) -> None:
        """Rows far below all unseen ones are no members at any rate, and all strangers where H is large."""
        scores = normal_scores(6, m=50, n=400, shift=-30.0)
        found = attack_figures(scores, rng=np.random.default_rng(0))["tpr_at_fpr"]
        assert found["members"]["0.01"]["detected"] == 0
        assert found["strangers"]["0.01"]["detected"] == 50
        assert found["strangers"]["0.001"] is None

    def test_one_row_on_either_side(self) -> None:
        """There is a figure, and it shows nothing."""
        found = attack_figures(Scores(np.ones(1), np.zeros(1)), rng=np.random.default_rng(0))
        assert (found["auc"], found["permutation_p"], found["ks"]["p"]) == (1.0, 1.0, 1.0)
