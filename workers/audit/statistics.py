"""Interval estimates and tests for accuracies and areas under the ROC curve, alone and paired.

Notation: a positive scores above a negative with probability theta, the AUC (ties count one half). DeLong's
variance is 0 whenever all placements are equal: at an AUC of exactly 0 or 1, and where every score is tied.
That is no certainty, so each AUC interval is the wider, at either end, of two: DeLong's with the t quantile
at Brunner and Munzel's degrees of freedom (right for any distribution, but blind in these cases and with one
row), and Newcombe's score interval, which has a width whatever the scores are. Near theta = 1/2 the two
variances agree.

Sources: Wilson 1927; DeLong, DeLong & Clarke-Pearson 1988; Sun & Xu 2014 (midranks); Brunner & Munzel 2000;
Newcombe 2006, part 2, method 5; Zou & Donner 2008 (MOVER); Agresti & Min 2005; Streitberg & Roehmel 1986.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from workers.audit.outputs import BoolArray, FloatArray, IntArray

_EXACT_WORK = 2e7  # array updates up to which the permutation distribution is enumerated (well under 0.1 s)
_EDGE = 1e-15
_LEVELS = (-300.0, float(np.log10(0.999)))  # where a p is looked for, as powers of ten


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Scores(NamedTuple):
    """Attack scores of members-to-be (float64 [m]) and of non-members (float64 [n]), m and n at least 1."""

    positives: FloatArray
    negatives: FloatArray


HitPair = tuple[BoolArray, BoolArray]  # which rows of F and of H are classified as labelled


@dataclass(frozen=True, kw_only=True)
class Difference:
    """First minus second on the same rows, with 95% and 90% intervals and a two-sided p for no difference."""

    difference: float
    standard_error: float
    low: float
    high: float
    low90: float
    high90: float
    p: float

    @property
    def figures(self) -> dict[str, float]:
        """What a report says of it: {"difference", "low", "high", "low90", "high90", "p"}."""
        return {name: value for name, value in asdict(self).items() if name != "standard_error"}


def rate(correct: int, n: int) -> dict[str, float | None]:
    """{"rate", "low", "high"}: `correct` of `n` trials with Wilson's 95% interval; None of no trial."""
    if n == 0:
        return {"rate": None, "low": None, "high": None}
    return {"rate": correct / n, **wilson(correct, n)._asdict()}


def wilson(correct: int, n: int, level: float = 0.05) -> Interval:
    """Wilson's score interval for the rate behind `correct` of `n` (at least 1) independent trials.

    `level` is, here and below, the error allowed: 0.05 gives the 95% interval.
    """
    if not 0 <= correct <= n or n < 1:
        raise ValueError(f"{correct} of {n} is not a rate")
    z = _quantile(level)
    rate, spread = correct / n, z * z / n
    centre = (rate + spread / 2) / (1 + spread)
    half = z * np.sqrt(rate * (1 - rate) / n + spread / (4 * n)) / (1 + spread)
    low = 0.0 if correct == 0 else float(centre - half)
    return Interval(low, 1.0 if correct == n else float(centre + half))


def placements(scores: Scores) -> tuple[FloatArray, FloatArray]:
    """DeLong's structural components, by midranks in O((m + n) log(m + n)).

    Returns:
        [m] the share of negatives below each positive, and [n] the share of positives above each negative;
        ties count one half. Each array's mean is the AUC.
    """
    m, n = len(scores.positives), len(scores.negatives)
    together = stats.rankdata(np.concatenate(scores))
    of_positives = (together[:m] - stats.rankdata(scores.positives)) / n
    of_negatives = 1 - (together[m:] - stats.rankdata(scores.negatives)) / m
    return of_positives, of_negatives


def auc(scores: Scores) -> float:
    """P(positive > negative) + P(tie) / 2."""
    return float(placements(scores)[0].mean())


def delong_variance(scores: Scores) -> float:
    """DeLong's variance of the AUC. Needs two positives and two negatives."""
    return _placement_variance(*placements(scores))[0]


def auc_interval(scores: Scores, level: float = 0.05) -> Interval:
    """The wider of DeLong's and Newcombe's interval, within [0, 1]."""
    components = placements(scores)
    return _auc_interval(float(components[0].mean()), components, level)


def auc_p_value(scores: Scores) -> float:
    """Two-sided p for `positives and negatives are exchangeable` (Mann-Whitney, ties kept).

    Enumerates the permutation distribution of the rank sum where that is cheap, otherwise uses the normal
    approximation with tie and continuity corrections.
    """
    small, large = sorted(scores, key=len)
    m, total = len(small), len(small) + len(large)
    ranks = stats.rankdata(np.concatenate([small, large]))
    if (m * total) ** 2 <= _EXACT_WORK:
        return _permutation_p(np.rint(2 * ranks).astype(np.int64), m)
    ties = np.unique(ranks, return_counts=True)[1].astype(np.float64)
    variance = m * (total - m) / 12 * (total + 1 - (ties**3 - ties).sum() / (total * (total - 1)))
    if variance == 0:
        return 1.0
    distance = abs(ranks[:m].sum() - m * (total + 1) / 2)
    return float(min(1.0, 2 * stats.norm.sf((distance - 0.5) / np.sqrt(variance))))


def paired_delong(first: Scores, second: Scores) -> Difference:
    """AUC of `first` minus AUC of `second`, two score vectors of the same positives and negatives.

    The interval is the wider of paired DeLong (t quantile) and MOVER, which combines the two networks' own
    intervals by their DeLong correlation; p is the level at which that interval just reaches 0.

    Raises:
        ValueError: the two do not score the same numbers of rows.
    """
    if [len(part) for part in first] != [len(part) for part in second]:
        raise ValueError("paired scores need the same positives and the same negatives")
    pair = _PairedPlacements.of(first, second)
    ninety_five, ninety = pair.interval(0.05), pair.interval(0.1)
    return Difference(
        difference=pair.difference,
        standard_error=float(np.sqrt(pair.variance)),
        low=ninety_five.low,
        high=ninety_five.high,
        low90=ninety.low,
        high90=ninety.high,
        p=_p_by_inversion(pair.interval),
    )


def paired_accuracy(first: BoolArray, second: BoolArray) -> Difference:
    """Accuracy of `first` minus accuracy of `second` on the same rows (bool [n] each, n at least 1).

    Agresti & Min's interval (one half added to each cell of the 2 x 2 table) and McNemar's exact p.

    Raises:
        ValueError: the two differ in length or are empty.
    """
    if first.shape != second.shape or not len(first):
        raise ValueError("paired accuracies need the same rows, at least one")
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    n = len(first)
    centre = (only_first - only_second) / (n + 2)
    error = np.sqrt(only_first + only_second + 1 - (only_first - only_second) ** 2 / (n + 2)) / (n + 2)

    def interval(level: float) -> Interval:
        half = _quantile(level) * error
        return Interval(max(-1.0, float(centre - half)), min(1.0, float(centre + half)))

    ninety_five, ninety = interval(0.05), interval(0.1)
    return Difference(
        difference=(only_first - only_second) / n,
        standard_error=float(error),
        low=ninety_five.low,
        high=ninety_five.high,
        low90=ninety.low,
        high90=ninety.high,
        p=_mcnemar_exact(only_first, only_second),
    )


def excess_of_gaps(unlearned: HitPair, references: HitPair) -> Difference:
    """How much more one network's accuracy on F exceeds that on H than the references' does on the mean.

    A difference in differences: on each row the network's hit less the references' mean hit, and of that the
    mean on F less the mean on H. What makes networks differ everywhere cancels out. The two means are of
    different rows; to the variance of each, one half is added to the counts as in `paired_accuracy`, so that
    no interval is without a width. Normal quantiles.

    Args:
        unlearned: on F and on H, bool [m] and [n], m and n at least 1.
        references: bool [K, m] and [K, n].
    """
    pairs = zip(unlearned, references, strict=True)
    forget, holdout = (own - others.mean(axis=0) for own, others in pairs)
    (gain, of_gain), (loss, of_loss) = (_mean_and_variance(rows) for rows in (forget, holdout))
    error = (of_gain + of_loss) ** 0.5
    centre = gain - loss

    def interval(level: float) -> Interval:
        half = _quantile(level) * error
        return Interval(max(-2.0, centre - half), min(2.0, centre + half))

    ninety_five, ninety = interval(0.05), interval(0.1)
    return Difference(
        difference=float(forget.mean() - holdout.mean()),
        standard_error=error,
        low=ninety_five.low,
        high=ninety_five.high,
        low90=ninety.low,
        high90=ninety.high,
        p=float(min(1.0, 2 * stats.norm.sf(abs(centre) / error))),
    )


def _mean_and_variance(gains: FloatArray) -> tuple[float, float]:
    """Of the mean of differences in [-1, 1], with half a row more that gained and half a row that lost."""
    n, total = len(gains) + 2, float(gains.sum())
    return total / n, (float((gains**2).sum()) + 1 - total**2 / n) / n**2


def _quantile(level: float, freedom: float = np.inf) -> float:
    return float(stats.t.isf(level / 2, freedom))


def _mcnemar_exact(only_first: int, only_second: int) -> float:
    fewer, discordant = min(only_first, only_second), only_first + only_second
    return min(1.0, 2 * float(stats.binom.cdf(fewer, discordant, 0.5)))


def _placement_variance(of_positives: FloatArray, of_negatives: FloatArray) -> tuple[float, float]:
    """Variance of a mean of placements, and Satterthwaite's degrees of freedom as in Brunner & Munzel."""
    sizes = np.array([len(of_positives), len(of_negatives)])
    parts = np.array([of_positives.var(ddof=1), of_negatives.var(ddof=1)]) / sizes
    variance = float(parts.sum())
    freedom = variance**2 / float((parts**2 / (sizes - 1)).sum()) if variance > 0 else np.inf
    return variance, float(freedom)


def _auc_interval(value: float, components: tuple[FloatArray, FloatArray], level: float) -> Interval:
    m, n = (len(part) for part in components)
    low, high = _newcombe(value, m, n, level)
    if min(m, n) > 1:
        variance, freedom = _placement_variance(*components)
        half = _quantile(level, freedom) * variance**0.5
        low, high = min(low, value - half), max(high, value + half)
    return Interval(max(0.0, low), min(1.0, high))


def _newcombe(value: float, m: int, n: int, level: float) -> Interval:
    """All theta with (value - theta)^2 <= z^2 var(theta), Hanley & McNeil's variance at the mean size."""
    z, size = _quantile(level), (m + n) / 2 - 1

    def excess(theta: float) -> float:
        spread = 1 + size * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return float((value - theta) ** 2 - z * z * theta * (1 - theta) * spread / (m * n))

    inside = min(max(value, _EDGE), 1 - _EDGE)
    return Interval(optimize.brentq(excess, 0, inside), optimize.brentq(excess, inside, 1))


@dataclass(frozen=True)
class _PairedPlacements:
    """The placements of two networks on the same rows, and what follows from them."""

    first: tuple[FloatArray, FloatArray]
    second: tuple[FloatArray, FloatArray]
    variance: float  # of the difference; 0 where it cannot be estimated
    freedom: float
    correlation: float  # of the two AUCs; 0 where it cannot be estimated

    @classmethod
    def of(cls, first: Scores, second: Scores) -> _PairedPlacements:
        one, two = placements(first), placements(second)
        if min(len(part) for part in one) < 2:
            return cls(one, two, variance=0.0, freedom=np.inf, correlation=0.0)
        variance, freedom = _placement_variance(one[0] - two[0], one[1] - two[1])
        of_first, of_second = _placement_variance(*one)[0], _placement_variance(*two)[0]
        scale = 2 * (of_first * of_second) ** 0.5
        correlation = (of_first + of_second - variance) / scale if scale > 0 else 0.0
        return cls(one, two, variance=variance, freedom=freedom, correlation=min(1.0, max(-1.0, correlation)))

    @property
    def aucs(self) -> tuple[float, float]:
        return float(self.first[0].mean()), float(self.second[0].mean())

    @property
    def difference(self) -> float:
        return self.aucs[0] - self.aucs[1]

    def interval(self, level: float) -> Interval:
        half = _quantile(level, self.freedom) * self.variance**0.5
        low, high = self._mover(level)
        difference = self.difference
        return Interval(max(-1.0, min(low, difference - half)), min(1.0, max(high, difference + half)))

    def _mover(self, level: float) -> Interval:
        a, b = self.aucs
        of_a = _auc_interval(a, self.first, level)
        of_b = _auc_interval(b, self.second, level)

        def reach(one: float, two: float) -> float:
            return float(max(0.0, one**2 - 2 * self.correlation * one * two + two**2) ** 0.5)

        return Interval(
            a - b - reach(a - of_a.low, of_b.high - b),
            a - b + reach(of_a.high - a, b - of_b.low),
        )


def _p_by_inversion(interval: Callable[[float], Interval]) -> float:
    """The smallest level whose interval leaves 0 out, by bisection on its logarithm; 1 if hardly any does."""

    def excludes_zero(power: float) -> bool:
        low, high = interval(10**power)
        return low > 0 or high < 0

    low, high = _LEVELS
    if not excludes_zero(high):
        return 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if excludes_zero(middle) else (middle, high)
    return float(10**high)


def _permutation_p(doubled_ranks: IntArray, m: int) -> float:
    """Two-sided p of the rank sum of the first m, by counting every choice of m (shift algorithm)."""
    observed, expected = int(doubled_ranks[:m].sum()), m * (len(doubled_ranks) + 1)
    largest = int(np.sort(doubled_ranks)[-m:].sum())
    counts = np.zeros((m + 1, largest + 1))  # [how many chosen, their doubled rank sum]
    counts[0, 0] = 1
    for rank in doubled_ranks.tolist():
        counts[1:, rank:] += counts[:-1, : largest + 1 - rank].copy()
    sums = np.arange(largest + 1)
    extreme = np.abs(sums - expected) >= abs(observed - expected)
    return float(min(1.0, counts[m, extreme].sum() / counts[m].sum()))
