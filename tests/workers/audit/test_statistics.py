"""Every number against scipy, a quadratic twin, a hand-made solution or a simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workers.audit.outputs import BoolArray, FloatArray
from workers.audit.statistics import (
    Scores,
    auc,
    auc_interval,
    auc_p_value,
    delong_variance,
    excess_of_gaps,
    paired_accuracy,
    paired_delong,
    placements,
    wilson,
)

tied_scores = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=12).map(np.array)
score_pairs = st.builds(Scores, tied_scores, tied_scores)


def wins(scores: Scores) -> FloatArray:
    """The m x n table of comparisons: 1, 1/2 for a tie, 0."""
    return (np.sign(np.subtract.outer(scores.positives, scores.negatives)) + 1) / 2


def normal_scores(seed: int, *, m: int, n: int, shift: float) -> Scores:
    rng = np.random.default_rng(seed)
    return Scores(rng.normal(shift, 1.0, m), rng.normal(0.0, 1.0, n))


class TestWilson:
    @given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
    def test_agrees_with_scipy(self, trial: tuple[int, int]) -> None:
        """The interval is scipy's for every count."""
        expected = stats.binomtest(*trial).proportion_ci(0.95, method="wilson")
        assert wilson(*trial) == pytest.approx((expected.low, expected.high), abs=1e-12)

    def test_published_values(self) -> None:
        """18 of 20 gives .699 to .972, and 50 of 50 a lower limit of .929."""
        assert wilson(18, 20) == pytest.approx((0.699, 0.972), abs=5e-4)
        assert wilson(50, 50).low == pytest.approx(0.929, abs=5e-4)

    @pytest.mark.parametrize(("correct", "n"), [(0, 0), (3, 2), (-1, 5)])
    def test_refuses_what_is_no_rate(self, correct: int, n: int) -> None:
        """No trials, or more hits than trials, is an error and not an interval."""
        with pytest.raises(ValueError, match="not a rate"):
            wilson(correct, n)


class TestAuc:
    @given(score_pairs)
    def test_agrees_with_counting_pairs(self, scores: Scores) -> None:
        """The AUC and its placements are those of the quadratic count, ties included."""
        table = wins(scores)
        of_positives, of_negatives = placements(scores)
        np.testing.assert_allclose(of_positives, table.mean(axis=1), atol=1e-12)
        np.testing.assert_allclose(of_negatives, table.mean(axis=0), atol=1e-12)
        assert auc(scores) == pytest.approx(table.mean(), abs=1e-12)

    @given(score_pairs)
    def test_delong_variance_agrees_with_counting_pairs(self, scores: Scores) -> None:
        """DeLong's variance is that of the quadratic count."""
        table = wins(scores)
        m, n = table.shape
        expected = table.mean(axis=1).var(ddof=1) / m + table.mean(axis=0).var(ddof=1) / n
        assert delong_variance(scores) == pytest.approx(expected, abs=1e-12)

    def test_delong_variance_agrees_with_brunner_and_munzel(self) -> None:
        """scipy's Brunner-Munzel statistic is the AUC's distance from 1/2 in DeLong standard errors."""
        scores = normal_scores(1, m=40, n=70, shift=0.6)
        statistic = stats.brunnermunzel(scores.negatives, scores.positives).statistic
        assert (auc(scores) - 0.5) / delong_variance(scores) ** 0.5 == pytest.approx(statistic, abs=1e-9)

    def test_delong_variance_agrees_with_a_bootstrap(self) -> None:
        """Resampling both groups gives the same standard error within a tenth."""
        scores, rng = normal_scores(2, m=80, n=120, shift=0.8), np.random.default_rng(0)
        resampled = [
            auc(Scores(rng.choice(scores.positives, 80), rng.choice(scores.negatives, 120)))
            for _ in range(1500)
        ]
        assert np.std(resampled) == pytest.approx(delong_variance(scores) ** 0.5, rel=0.1)


class TestAucInterval:
    def test_is_delong_where_delong_is_wider(self) -> None:
        """On scores of unequal spread its end touches 1/2 at exactly scipy's Brunner-Munzel p."""
        rng = np.random.default_rng(3)
        scores = Scores(rng.normal(2.0, 4.0, 30), rng.normal(0.0, 0.5, 25))
        p = stats.brunnermunzel(scores.positives, scores.negatives).pvalue
        assert auc_interval(scores, p).low == pytest.approx(0.5, abs=1e-9)

    @pytest.mark.parametrize(("m", "n"), [(63, 63), (5, 400), (1, 30), (1, 1)])
    def test_perfect_separation_leaves_room(self, m: int, n: int) -> None:
        """At an AUC of 1 the lower end solves Newcombe's equation, here by its polynomial's root."""
        scores = Scores(np.linspace(2, 3, m), np.linspace(0, 1, n))
        z2, size = stats.norm.isf(0.025) ** 2, (m + n) / 2 - 1
        theta = np.polynomial.Polynomial([0, 1])
        spread = (2 - theta) * (1 + theta) + size * ((1 - theta) * (1 + theta) + theta * (2 - theta))
        roots = (m * n * (1 - theta) * (2 - theta) * (1 + theta) - z2 * theta * spread).roots()
        expected = next(root.real for root in roots if abs(root.imag) < 1e-9 and 0 < root.real < 1)
        low, high = auc_interval(scores)
        assert (low, high) == pytest.approx((expected, 1.0), abs=1e-9)
        mirrored = auc_interval(Scores(scores.negatives, scores.positives))
        assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)

    def test_constant_scores_are_not_certain(self) -> None:
        """A network whose margins are all equal gets an interval as wide as the null's, not [1/2, 1/2]."""
        low, high = auc_interval(Scores(np.zeros(50), np.zeros(80)))
        assert low < 0.42
        assert high > 0.58

    @pytest.mark.parametrize("shift", [0.0, 1.0, 2.2])
    def test_covers_the_truth(self, shift: float) -> None:
        """Over many small samples the 95% interval holds the true AUC about as often as it says."""
        truth = stats.norm.cdf(shift / np.sqrt(2))
        intervals = [auc_interval(normal_scores(seed, m=12, n=18, shift=shift)) for seed in range(400)]
        covered = np.mean([low <= truth <= high for low, high in intervals])
        assert covered > 0.92

    @given(score_pairs, st.floats(0.01, 0.5))
    def test_holds_the_estimate_and_grows_with_confidence(self, scores: Scores, level: float) -> None:
        """The interval lies in [0, 1], holds the AUC, and a smaller error makes it no narrower."""
        low, high = auc_interval(scores, level)
        assert 0 <= low <= auc(scores) <= high <= 1
        wider = auc_interval(scores, level / 2)
        assert wider.low <= low + 1e-12
        assert wider.high >= high - 1e-12


class TestAucPValue:
    @given(st.lists(st.floats(-9, 9), min_size=3, max_size=12, unique=True), st.integers(1, 2))
    def test_agrees_with_scipy_without_ties(self, values: list[float], m: int) -> None:
        """Without ties it is scipy's exact Mann-Whitney p."""
        scores = Scores(np.array(values[:m]), np.array(values[m:]))
        expected = stats.mannwhitneyu(*scores, method="exact").pvalue
        assert auc_p_value(scores) == pytest.approx(expected, abs=1e-12)

    @given(st.lists(st.integers(0, 3).map(float), min_size=3, max_size=9), st.integers(1, 2))
    def test_agrees_with_listing_every_choice(self, values: list[float], m: int) -> None:
        """With ties it is the share of all choices of m rows at least as far from 1/2."""
        together = np.array(values)
        distances = []
        for chosen in combinations(range(len(together)), m):
            rest = np.setdiff1d(np.arange(len(together)), chosen)
            distances.append(abs(wins(Scores(together[list(chosen)], together[rest])).mean() - 0.5))
        observed = abs(wins(Scores(together[:m], together[m:])).mean() - 0.5)
        expected = np.mean(np.array(distances) >= observed - 1e-9)
        assert auc_p_value(Scores(together[:m], together[m:])) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("decimals", [0, 6])
    def test_agrees_with_scipy_in_large_samples(self, decimals: int) -> None:
        """Beyond enumeration it is scipy's normal approximation with tie and continuity corrections."""
        scores = Scores(*(np.round(part, decimals) for part in normal_scores(4, m=300, n=500, shift=0.15)))
        expected = stats.mannwhitneyu(*scores, method="asymptotic").pvalue
        assert auc_p_value(scores) == pytest.approx(expected, abs=1e-12)

    def test_both_ways_of_computing_agree(self) -> None:
        """Where enumeration ends, the normal approximation is close to it."""
        scores = normal_scores(5, m=30, n=100, shift=0.3)
        assert auc_p_value(scores) == pytest.approx(
            stats.mannwhitneyu(*scores, method="asymptotic").pvalue, abs=2e-3
        )

    def test_constant_scores_show_nothing(self) -> None:
        """All scores equal gives p = 1, by enumeration and by approximation."""
        assert auc_p_value(Scores(np.zeros(3), np.zeros(4))) == 1.0
        assert auc_p_value(Scores(np.zeros(300), np.zeros(400))) == 1.0


def paired_scores(seed: int, *, m: int, n: int, shifts: tuple[float, float]) -> tuple[Scores, Scores]:
    """Two networks that find the same rows hard."""
    rng = np.random.default_rng(seed)
    hardness = rng.normal(size=m), rng.normal(size=n)
    first, second = (
        Scores(hardness[0] + shift + rng.normal(size=m), hardness[1] + rng.normal(size=n)) for shift in shifts
    )
    return first, second


class TestPairedDelong:
    @given(score_pairs)
    def test_variance_agrees_with_counting_pairs(self, first: Scores) -> None:
        """The squared standard error is the quadratic count's variance of the difference of tables."""
        second = Scores(first.positives[::-1] ** 2, np.roll(first.negatives, 1))
        table = wins(first) - wins(second)
        m, n = table.shape
        variance = table.mean(axis=1).var(ddof=1) / m + table.mean(axis=0).var(ddof=1) / n
        found = paired_delong(first, second)
        assert found.standard_error**2 == pytest.approx(variance, abs=1e-12)
        assert found.difference == pytest.approx(table.mean(), abs=1e-12)

    def test_agrees_with_the_covariance_form(self) -> None:
        """The variance is var(a) + var(b) - 2 cov(a, b) by DeLong's covariance matrices."""
        first, second = paired_scores(1, m=60, n=90, shifts=(1.0, 0.4))
        parts = list(zip(placements(first), placements(second), strict=True))
        covariance = sum(np.cov(np.stack(pair)) / len(pair[0]) for pair in parts)
        contrast = np.array([1.0, -1.0])
        expected = contrast @ covariance @ contrast
        assert paired_delong(first, second).standard_error ** 2 == pytest.approx(expected, abs=1e-12)

    def test_p_is_the_t_test_of_the_difference_in_regular_data(self) -> None:
        """With many rows p is close to that of the difference over its standard error, and never smaller."""
        found = paired_delong(*paired_scores(2, m=300, n=400, shifts=(0.5, 0.25)))
        plain = 2 * stats.norm.sf(abs(found.difference) / found.standard_error)
        assert plain <= found.p < 1.5 * plain

    def test_p_and_intervals_tell_the_same(self) -> None:
        """The interval leaves 0 out exactly where p is below its level."""
        for seed in range(30):
            found = paired_delong(*paired_scores(seed, m=25, n=30, shifts=(0.6, 0.0)))
            assert (found.p < 0.05) == (found.low > 0 or found.high < 0)
            assert (found.p < 0.1) == (found.low90 > 0 or found.high90 < 0)
            assert found.low <= found.low90 <= found.difference <= found.high90 <= found.high

    def test_is_antisymmetric(self) -> None:
        """Exchanging the networks changes the sign and nothing else."""
        first, second = paired_scores(3, m=20, n=35, shifts=(0.2, 0.9))
        one, other = paired_delong(first, second), paired_delong(second, first)
        assert (one.difference, one.low, one.high) == pytest.approx(
            (-other.difference, -other.high, -other.low), abs=1e-12
        )
        assert one.p == pytest.approx(other.p, rel=1e-6)

    def test_rejects_a_true_null_about_as_often_as_it_says(self) -> None:
        """Two equally good networks differ at the 5% level in about 5% of small samples."""
        found = [paired_delong(*paired_scores(seed, m=20, n=25, shifts=(0.7, 0.7))).p for seed in range(200)]
        assert 0.01 < np.mean(np.array(found) < 0.05) < 0.075

    def test_the_same_network_twice_does_not_differ(self) -> None:
        """Identical scores give difference 0 and p = 1."""
        first, _ = paired_scores(4, m=15, n=15, shifts=(0.5, 0.0))
        found = paired_delong(first, first)
        assert (found.difference, found.standard_error, found.p) == (0.0, 0.0, 1.0)

    def test_two_perfect_attacks_leave_room(self) -> None:
        """Where both AUCs are 1 DeLong's variance is 0, and the interval has a width all the same."""
        perfect = Scores(np.arange(20.0) + 50, np.arange(30.0))
        found = paired_delong(perfect, Scores(perfect.positives[::-1], perfect.negatives))
        assert found.standard_error == 0
        assert found.low90 < -0.03
        assert found.high90 > 0.03
        assert found.p == 1.0

    def test_opposite_perfect_attacks_differ_without_certainty(self) -> None:
        """AUC 1 against AUC 0: p is small but not 0, and smaller with more rows."""

        def found(rows: int) -> float:
            scores = Scores(np.linspace(2, 3, rows), np.linspace(0, 1, rows))
            return paired_delong(scores, Scores(-scores.positives, -scores.negatives)).p

        assert 0 < found(20) < found(5) < 0.05

    def test_one_row_is_little_evidence(self) -> None:
        """With a single forget row the interval of the difference is wide and p is not small."""
        rng = np.random.default_rng(6)
        negatives = rng.normal(size=200)
        found = paired_delong(Scores(np.array([9.0]), negatives), Scores(np.array([0.0]), negatives))
        assert found.high - found.low > 0.5
        assert found.p > 0.05

    def test_refuses_different_rows(self) -> None:
        """Score vectors of different lengths cannot be of the same rows."""
        first, second = paired_scores(5, m=4, n=4, shifts=(0.0, 0.0))
        with pytest.raises(ValueError, match="same positives"):
            paired_delong(first, Scores(second.positives[:3], second.negatives))


class TestPairedAccuracy:
    @given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
    def test_agrees_with_the_adjusted_table(self, rows: list[tuple[bool, bool]]) -> None:
        """The interval is Wald's on the 2 x 2 table with one half added to each cell, the p is scipy's."""
        first, second = (np.array(column) for column in zip(*rows, strict=True))
        cells = np.array([[(a, b) == (x, y) for x, y in rows] for a in (True, False) for b in (True, False)])
        table = cells.sum(axis=1) + 0.5  # both right, only first, only second, both wrong
        values, shares = np.array([0.0, 1.0, -1.0, 0.0]), table / table.sum()
        centre = values @ shares
        error = np.sqrt((values**2 @ shares - centre**2) / table.sum())
        found = paired_accuracy(first, second)
        assert found.difference == pytest.approx(first.mean() - second.mean(), abs=1e-12)
        assert found.low == pytest.approx(max(-1, centre - stats.norm.isf(0.025) * error), abs=1e-9)
        assert found.high90 == pytest.approx(min(1, centre + stats.norm.isf(0.05) * error), abs=1e-9)
        only_first, only_second = int(cells[1].sum()), int(cells[2].sum())
        discordant = only_first + only_second
        expected = stats.binomtest(only_first, discordant).pvalue if discordant else 1.0
        assert found.p == pytest.approx(expected, abs=1e-12)

    def test_hand_worked(self) -> None:
        """12 rows right only before, 2 only after, of 100: difference .10, by hand .098 +- .0752 (95%)."""
        first = np.array([True] * 12 + [False] * 2 + [True] * 86)
        second = np.array([False] * 12 + [True] * 2 + [True] * 86)
        found = paired_accuracy(first, second)
        assert found.difference == pytest.approx(0.10, abs=1e-12)
        centre, half = 10 / 102, 1.959964 * np.sqrt(15 - 100 / 102) / 102
        assert (found.low, found.high) == pytest.approx((centre - half, centre + half), abs=1e-6)
        assert found.p == pytest.approx(2 * (1 + 14 + 91) / 2**14, abs=1e-12)

    def test_no_discordant_rows_leave_room(self) -> None:
        """Two networks that agree on every row differ by 0, within an interval that is not a point."""
        found = paired_accuracy(np.ones(30, dtype=bool), np.ones(30, dtype=bool))
        assert (found.difference, found.p) == (0.0, 1.0)
        assert found.low < 0 < found.high

    def test_refuses_different_rows(self) -> None:
        """Arrays of different lengths, or empty ones, are an error."""
        with pytest.raises(ValueError, match="same rows"):
            paired_accuracy(np.ones(3, dtype=bool), np.ones(4, dtype=bool))
        with pytest.raises(ValueError, match="same rows"):
            paired_accuracy(np.ones(0, dtype=bool), np.ones(0, dtype=bool))


def coins(seed: int, *shape: int, share: float) -> BoolArray:
    return np.random.default_rng(seed).random(shape) < share


class TestExcessOfGaps:
    def test_by_hand(self) -> None:
        """Four rows of F, two of H, two references: every number worked out on paper."""
        own = np.array([True, True, True, False]), np.array([True, False])
        others = np.array([[True, False, False, False], [True, True, False, False]]), np.eye(2, dtype=bool)
        # On F the gains are 0, 1/2, 1, 0; on H they are 1/2, -1/2.
        found = excess_of_gaps(own, others)
        of_forget, of_holdout = (0.25 + 1 + 1 - 1.5**2 / 6) / 36, (0.25 + 0.25 + 1) / 16
        assert found.difference == pytest.approx(1.5 / 4)
        assert found.standard_error == pytest.approx((of_forget + of_holdout) ** 0.5)
        centre = 1.5 / 6
        assert found.high == pytest.approx(centre + stats.norm.ppf(0.975) * found.standard_error)
        assert found.p == pytest.approx(2 * stats.norm.sf(centre / found.standard_error))

    def test_is_welchs_test_on_many_rows(self) -> None:
        """With many rows the added halves do not matter."""
        own = coins(1, 4000, share=0.9), coins(2, 3000, share=0.8)
        others = coins(3, 3, 4000, share=0.8), coins(4, 3, 3000, share=0.8)
        gains = [one - several.mean(axis=0) for one, several in zip(own, others, strict=True)]
        welch = stats.ttest_ind(*gains, equal_var=False)
        found = excess_of_gaps(own, others)
        assert found.standard_error == pytest.approx(
            sum(gain.var(ddof=1) / len(gain) for gain in gains) ** 0.5, rel=2e-3
        )
        assert np.log(found.p) == pytest.approx(np.log(welch.pvalue), rel=0.03)

    def test_rejects_as_often_as_it_says(self) -> None:
        """A network that is one of the references by nature is rejected at 5% about once in twenty."""
        rejected = 0
        for seed in range(400):
            hard = np.random.default_rng(seed).random(160)
            models = np.random.default_rng((seed, 1)).random((4, 160)) > hard
            own, others = models[0], models[1:]
            found = excess_of_gaps((own[:60], own[60:]), (others[:, :60], others[:, 60:]))
            rejected += found.p < 0.05
        assert 6 <= rejected <= 34

    def test_equal_networks_leave_a_width(self) -> None:
        """No difference anywhere is no certainty."""
        same = np.ones(5, dtype=bool)
        found = excess_of_gaps((same, same), (same[None], same[None]))
        assert found.difference == 0
        assert found.low90 < -0.2 < 0.2 < found.high90
        assert found.p == 1
