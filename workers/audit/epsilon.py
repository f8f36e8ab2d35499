"""Lower bounds on the epsilon of a computation, from how well its canaries can be told.

The drill, issue 6: "coin-flipped canaries ... a one-run epsilon bound". If training and unlearning together
were (epsilon, delta)-differentially private, no attack could tell rows that took part from rows that did
not better than a certain rate. So a good attack refutes a small epsilon; a bad one proves nothing.

    {"epsilon": None |                                                    None: a score is not finite
        {"canaries": m, "guesses": r, "right": v, "delta", "low"}}        95% lower bound; 0 refutes nothing

The bound of one run (Steinke, Nasr & Jagielski 2023, theorem 5.2) holds where a fair coin of its own
decided for each canary whether it took part: for canaries of the service's own, never for a customer's F
and H. For a bound on unlearning, "took part" means trained on and then forgotten. Canaries that are trained
on and kept are others, drawn apart: of one draw with three outcomes, what is left has no fair coin. How
many guesses are made must be settled beforehand: the best of several bounds is no bound.

`rates_epsilon` is the classical bound of many independent trainings; nothing in the layout uses it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom, binomtest

from workers.audit.outputs import BoolArray, FloatArray
from workers.audit.statistics import Interval

_LARGEST = 50.0  # an epsilon that no number of canaries refutes


class Guesses(NamedTuple):
    """How an attack did on canaries that a coin had included or not."""

    canaries: int
    guesses: int
    right: int


def epsilon_figures(
    scores: FloatArray,
    included: BoolArray,
    *,
    guesses: int,
    delta: float,
    rng: np.random.Generator,
) -> dict[str, Any] | None:
    """The bound of one run, in the layout above; arguments as of `guess` and `one_run_epsilon`."""
    if not np.isfinite(scores).all():
        return None
    found = guess(scores, included, guesses, rng=rng)
    return {**found._asdict(), "delta": delta, "low": one_run_epsilon(found, delta=delta)}


def guess(scores: FloatArray, included: BoolArray, guesses: int, *, rng: np.random.Generator) -> Guesses:
    """Call the highest half of the guesses included and the lowest half not, and count what is right.

    Ties are broken by `rng`, as the order of the rows may know the coins.

    Args:
        scores: finite float64 [m]; what is included should score high.
        included: bool [m]: how the coins fell.
        guesses: an even number up to m, settled before the scores were seen.

    Raises:
        ValueError: such a number of guesses cannot be made.
    """
    if guesses % 2 or not 0 <= guesses <= len(scores):
        raise ValueError(f"{guesses} guesses on {len(scores)} canaries are not an even number up to that")
    shuffled = rng.permutation(len(scores))
    order = shuffled[np.argsort(scores[shuffled], kind="stable")]
    lowest, highest = order[: guesses // 2], order[len(order) - guesses // 2 :]
    right = int((~included[lowest]).sum() + included[highest].sum())
    return Guesses(len(scores), guesses, right)


def one_run_p(found: Guesses, epsilon: float, delta: float = 0.0) -> float:
    """At most how likely so many right guesses are if the computation is (epsilon, delta)-private.

    P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i over i = 1 ... v, with W binomial of r guesses, each
    right with probability e^epsilon / (1 + e^epsilon).
    """
    m, r, v = found
    q = float(expit(epsilon))
    tail = float(binom.sf(v - 1, r, q))
    # P[v > W >= v - i] is the sum of the i probabilities just below v.
    below = binom.pmf(np.arange(v - 1, -1, -1), r, q).cumsum() / np.arange(1, v + 1)
    return min(1.0, tail + 2 * m * delta * float(below.max(initial=0.0)))


def one_run_epsilon(found: Guesses, *, delta: float = 0.0, level: float = 0.05) -> float:
    """The largest epsilon that these guesses refute at this level: a lower bound, 0 if they refute none.

    With delta 0 and all of r right it is -log(level^(-1 / r) - 1).
    """

    def excess(epsilon: float) -> float:
        return one_run_p(found, epsilon, delta) - level

    if excess(0.0) >= 0:
        return 0.0
    return float(brentq(excess, 0.0, _LARGEST, xtol=1e-12))


def clopper_pearson(k: int, n: int, level: float = 0.05) -> Interval:
    """The exact two-sided interval of the rate behind k of n trials, all of [0, 1] without any.

    `level` is the error allowed.
    """
    if n == 0:
        return Interval(0.0, 1.0)
    low, high = binomtest(k, n).proportion_ci(1 - level, method="exact")
    return Interval(float(low), float(high))


class Calls(NamedTuple):
    """How many of the rows that took part, and of those that did not, an attack calls included."""

    detected: int
    included: int
    false_alarms: int
    excluded: int


def rates_epsilon(calls: Calls, *, delta: float = 0.0, level: float = 0.05) -> float:
    """A lower bound from an attack's two error rates; 0 if they refute no epsilon.

    The largest of log((P - delta) / Q) over an event's probabilities with and without a row: being called
    included and not being called so, either way round. P and Q stand at the unfavourable ends of
    Clopper-Pearson intervals that both hold with probability 1 - level, so all four bounds hold together.
    The threshold must not have been chosen on these rows. Over many independent trainings, one canary each,
    this is the classical audit; of rows of one training it is right only as far as they are independent.
    """
    hits = clopper_pearson(calls.detected, calls.included, level / 2)
    alarms = clopper_pearson(calls.false_alarms, calls.excluded, level / 2)
    misses, silences = (Interval(1 - rate.high, 1 - rate.low) for rate in (hits, alarms))
    events = ((hits, alarms), (alarms, hits), (misses, silences), (silences, misses))
    return max(0.0, *(_log_ratio(likely.low - delta, rare.high) for likely, rare in events))


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 else -math.inf
