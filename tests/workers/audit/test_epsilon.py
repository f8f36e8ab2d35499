"""Bounds against closed forms, binomial tails summed by hand, published values and simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from workers.audit.epsilon import (
    Calls,
    Guesses,
    clopper_pearson,
    epsilon_figures,
    guess,
    one_run_epsilon,
    one_run_p,
    rates_epsilon,
)

few_guesses = st.integers(0, 12).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, r)))


class TestGuess:
    def test_hand_worked(self) -> None:
        """The two highest are called included, one rightly; the two lowest not, both rightly."""
        scores = np.array([3.0, -1.0, 0.5, 9.0, -2.0])
        included = np.array([True, False, True, False, False])
        assert guess(scores, included, 4, rng=np.random.default_rng(0)) == Guesses(5, 4, 3)

    def test_ties_tell_nothing(self) -> None:
        """Rows in the order of their coins, all scores equal: half of the guesses are right, not all."""
        included = np.arange(400) >= 200
        found = guess(np.zeros(400), included, 400, rng=np.random.default_rng(0))
        assert abs(found.right - 200) < 50

    @pytest.mark.parametrize("guesses", [3, 6, -2])
    def test_refuses_what_cannot_be_guessed(self, guesses: int) -> None:
        """An odd number, more than there are canaries, or fewer than none."""
        with pytest.raises(ValueError, match="canaries"):
            guess(np.ones(4), np.ones(4, dtype=bool), guesses, rng=np.random.default_rng(0))


class TestEpsilonFigures:
    def test_a_perfect_attack(self) -> None:
        """50 of 50 right: the closed form's bound."""
        included = np.arange(50) % 2 == 0
        found = epsilon_figures(
            included.astype(float), included, guesses=50, delta=0.0, rng=np.random.default_rng(0)
        )
        low = pytest.approx(-math.log(0.05 ** (-1 / 50) - 1), abs=1e-9)
        assert found == {"canaries": 50, "guesses": 50, "right": 50, "delta": 0.0, "low": low}

    def test_needs_finite_scores(self) -> None:
        """A network that diverged has no bound rather than one of 0."""
        scores, rng = np.array([1.0, np.nan]), np.random.default_rng(0)
        assert epsilon_figures(scores, np.ones(2, dtype=bool), guesses=2, delta=0.0, rng=rng) is None


class TestOneRun:
    @given(few_guesses, st.integers(0, 3), st.sampled_from([Fraction(0), Fraction(1, 1000)]))
    def test_agrees_with_summing_fractions(self, trial: tuple[int, int], odds: int, delta: Fraction) -> None:
        """The theorem's sums term by term, with e^epsilon a whole number."""
        r, v = trial
        m, q = r + 3, Fraction(odds + 1, odds + 2)

        def between(low: int, high: int) -> Fraction:
            return sum(
                (math.comb(r, w) * q**w * (1 - q) ** (r - w) for w in range(max(low, 0), high)), Fraction(0)
            )

        worst = max((between(v - i, v) / i for i in range(1, m + 1)), default=Fraction(0))
        expected = min(Fraction(1), between(v, r + 1) + 2 * m * delta * worst)
        found = one_run_p(Guesses(m, r, v), math.log(odds + 1), float(delta))
        assert found == pytest.approx(float(expected), abs=1e-12)

    @pytest.mark.parametrize("r", [10, 50, 400])
    def test_closed_form_where_all_guesses_are_right(self, r: int) -> None:
        """q^r = level gives epsilon = -log(level^(-1/r) - 1)."""
        found = one_run_epsilon(Guesses(r, r, r))
        assert found == pytest.approx(-math.log(0.05 ** (-1 / r) - 1), abs=1e-9)

    @pytest.mark.parametrize(
        ("m", "right", "expected"),
        [
            (50, 50, 2.8),
            (100, 100, 3.5),
            (400, 400, 4.9),
            (1000, 1000, 5.8),
            (100, 75, 0.70),
            (400, 240, 0.23),
        ],
    )
    def test_published_values(self, m: int, right: int, expected: float) -> None:
        """At 95% with delta 1e-5, a guess for every canary."""
        assert one_run_epsilon(Guesses(m, m, right), delta=1e-5) == pytest.approx(expected, abs=0.05)

    def test_the_bound_is_where_p_is_the_level(self) -> None:
        """At the bound p is .05, beyond it more."""
        found = Guesses(200, 120, 90)
        bound = one_run_epsilon(found, delta=1e-5)
        assert one_run_p(found, bound, 1e-5) == pytest.approx(0.05, abs=1e-9)
        assert one_run_p(found, bound + 0.1, 1e-5) > 0.05

    @pytest.mark.parametrize("found", [Guesses(10, 0, 0), Guesses(10, 10, 0), Guesses(100, 100, 55)])
    def test_guesses_like_chance_refute_nothing(self, found: Guesses) -> None:
        """The bound is 0."""
        assert one_run_epsilon(found) == 0.0

    def test_holds_under_randomised_response(self) -> None:
        """Each coin told truly with odds e^1: the bound exceeds 1 in at most about one run in twenty."""
        right = np.random.default_rng(0).binomial(200, math.e / (1 + math.e), 400)
        exceeded = np.mean([one_run_epsilon(Guesses(200, 200, int(v))) > 1 for v in right])
        assert 0.02 < exceeded < 0.075


class TestClopperPearson:
    @given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
    def test_is_its_beta_quantiles(self, trial: tuple[int, int]) -> None:
        """Beta(a/2; k, n - k + 1) and Beta(1 - a/2; k + 1, n - k), 0 and 1 at the ends."""
        k, n = trial
        low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
        high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
        assert clopper_pearson(k, n) == pytest.approx((low, high), abs=1e-9)

    def test_no_trial_tells_nothing(self) -> None:
        """Any rate is possible, and no epsilon is refuted."""
        assert clopper_pearson(0, 0) == (0.0, 1.0)
        assert rates_epsilon(Calls(0, 0, 0, 30)) == 0.0


class TestRates:
    @pytest.mark.parametrize("n", [64, 512])
    def test_closed_form_of_a_perfect_attack(self, n: int) -> None:
        """All called rightly: tails of level / 4 give c = .0125^(1/n) and epsilon = log(c / (1 - c))."""
        c = 0.0125 ** (1 / n)
        assert rates_epsilon(Calls(n, n, 0, n)) == pytest.approx(math.log(c / (1 - c)), abs=1e-9)

    @given(st.tuples(*[st.integers(0, 40)] * 2), st.sampled_from([0.0, 1e-3]))
    def test_does_not_depend_on_what_is_called_what(self, called: tuple[int, int], delta: float) -> None:
        """Reversing the attack, or exchanging the two groups, leaves the bound as it is."""
        a, b = called
        found = rates_epsilon(Calls(a, 40, b, 40), delta=delta)
        assert found >= 0
        assert found == pytest.approx(rates_epsilon(Calls(40 - a, 40, 40 - b, 40), delta=delta), abs=1e-9)
        assert found == pytest.approx(rates_epsilon(Calls(b, 40, a, 40), delta=delta), abs=1e-9)

    def test_delta_weakens_the_bound(self) -> None:
        """And rates that do not differ give 0."""
        assert rates_epsilon(Calls(90, 100, 10, 100), delta=0.1) < rates_epsilon(Calls(90, 100, 10, 100))
        assert rates_epsilon(Calls(50, 100, 50, 100)) == 0.0
