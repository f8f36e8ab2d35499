"""The attack on phi, calibrated by K retrained references: how unlike a retrained network is this one?

Deep audit, issue 6: "centred AUC, spread ratio" and "the most memorised decile apart". Some rows are hard
and some easy for every network, which hides what one network remembers; subtracting the references' mean phi
takes that away (Watson et al. 2022). The references must have seen neither F nor H. If F and H are drawn
alike and the network never saw F either, the centred scores are exchangeable, and their p is exact for any K.

    {"calibrated": {"original" | "unlearned": None |                      None: no reference, or a set that is
        {"references": K,                                                 empty or not finite in some network
         "centred": ATTACK,                                               `workers.audit.attack` on phi - mean
         "spread_auc": AUC,                                               of |phi - mean|
         "held_out": None | {"aucs": [K], "low", "high", "rank_p"},       None with one reference
         "held_out_spread": None | the same of "spread_auc",              None with one or two
         "spread": None | {"forget", "holdout", "quotient"},              None with one reference
         "most_memorised": None | AUC + {"rows"}}}}                       None with one reference

**spread_auc**: rows that were forgotten too much are as far from the mean as those forgotten too little.

**held_out**: the area of each reference, centred by the others, and the interval in which that of one more
retrained network lies 19 times out of 20, mean +- t s sqrt(1 + 1/K); wide for small K. `rank_p` is the share,
among the references and the network, each centred by all the others, of those at least as far from 1/2 as the
network: exact, and never below 1 / (K + 1).

**spread**: how far phi is from the references' mean, in units of how far a reference is: on F and on H,
about 1 for a retrained network. A `quotient` of the two above 1 is a leak. "holdout" above 1 says that the
network differs from retrained ones everywhere (drift); "forget" by itself says neither.

**most_memorised**: the same attack on the tenth of F that the original knew best beyond the references. An
average over F may hide that these were not forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t

from workers.audit.attack import attack_figures, auc_figures
from workers.audit.features import margins
from workers.audit.outputs import FloatArray, IntArray, SetName, Sets
from workers.audit.statistics import Interval, Scores, auc

MOST_MEMORISED = 0.1  # share of F


@dataclass(frozen=True)
class Referenced:
    """phi of one network, float64 [n], and of K references on the same rows, float64 [K, n]; K at least 1."""

    network: FloatArray
    references: FloatArray

    @classmethod
    def of(cls, network: Sets, references: Sequence[Sets], name: SetName) -> Referenced | None:
        """Those of one set; None without a reference or a row, or where a logit is not finite."""
        outputs = [sets[name] for sets in (network, *references)]
        if not references or not all(len(part) and part.finite.all() for part in outputs):
            return None
        first, *others = (margins(part) for part in outputs)
        return cls(first, np.stack(others))

    @property
    def centred(self) -> FloatArray:
        """phi minus the references' mean: float64 [n]."""
        centred: FloatArray = self.network - self.references.mean(axis=0)
        return centred


def centred_scores(network: Sets, references: Sequence[Sets]) -> Scores | None:
    """phi minus the references' mean, of F and of H; None as `Referenced.of`."""
    forget, holdout = (Referenced.of(network, references, name) for name in ("forget", "holdout"))
    return Scores(forget.centred, holdout.centred) if forget and holdout else None


def calibrated_figures(
    network: Sets, *, original: Sets, references: Sequence[Sets], rng: np.random.Generator
) -> dict[str, Any] | None:
    """All of them for one network, in the layout above; "holdout" as already matched."""
    pair = [Referenced.of(network, references, name) for name in ("forget", "holdout")]
    before = Referenced.of(original, references, "forget")
    if pair[0] is None or pair[1] is None or before is None:
        return None
    forget, holdout = pair[0], pair[1]
    scores = Scores(forget.centred, holdout.centred)
    several = len(references) > 1
    return {
        "references": len(references),
        "centred": attack_figures(scores, rng=rng),
        "spread_auc": auc_figures(Scores(np.abs(scores.positives), np.abs(scores.negatives))),
        "held_out": held_out(forget, holdout) if several else None,
        # Two references are equally far from each other: their areas agree, and say nothing of a third's.
        "held_out_spread": held_out(forget, holdout, of=np.abs) if len(references) > 2 else None,
        "spread": spread(forget, holdout) if several else None,
        "most_memorised": most_memorised(forget, holdout, before.network) if several else None,
    }


def held_out(
    forget: Referenced, holdout: Referenced, *, of: Callable[[FloatArray], FloatArray] = np.asarray
) -> dict[str, Any]:
    """{"aucs": [K], "low", "high", "rank_p"} of the centred scores, or `of` them; needs two references."""
    aucs = _held_out_aucs(forget.references, holdout.references, of=of)
    together = (np.vstack([rows.network, rows.references]) for rows in (forget, holdout))
    unusual = np.abs(np.array(_held_out_aucs(*together, of=of)) - 0.5)
    interval = prediction_interval(aucs)
    return {
        "aucs": aucs,
        "low": max(0.0, interval.low),
        "high": min(1.0, interval.high),
        # Areas are multiples of 1 / 2mn, so that equals differ by rounding alone.
        "rank_p": float((unusual >= unusual[0] - 1e-12).mean()),
    }


def prediction_interval(values: Sequence[float], level: float = 0.05) -> Interval:
    """Where one more value of the same normal distribution lies: mean +- t_{K-1} s sqrt(1 + 1/K).

    `level` is the error allowed; at least two values are needed. The factor of s is 15.6 for K = 2, 3.56 for
    4 and 2.51 for 8.
    """
    k = len(values)
    half = float(t.isf(level / 2, k - 1) * np.std(values, ddof=1) * np.sqrt(1 + 1 / k))
    mean = float(np.mean(values))
    return Interval(mean - half, mean + half)


def spread(forget: Referenced, holdout: Referenced) -> dict[str, float | None]:
    """{"forget", "holdout", "quotient"}; needs two references; None where the references do not differ.

    Network and reference are measured from the same means, each of the other K - 1 references, so that a
    network like the references has 1 for any K.
    """
    of_forget, of_holdout = _spread(forget), _spread(holdout)
    quotient = of_forget / of_holdout if of_forget is not None and of_holdout else None
    return {"forget": of_forget, "holdout": of_holdout, "quotient": quotient}


def most_memorised(forget: Referenced, holdout: Referenced, original: FloatArray) -> dict[str, Any]:
    """The centred attack on the rows of F where the original's phi is furthest above the references'.

    Every other reference chooses the rows and the rest, at least one, centre them. If the same ones did both,
    rows would be chosen for their references' being low by chance, and an honest network would seem to
    remember them.

    Args:
        original: phi of F before unlearning, float64 [m].

    Returns:
        {"auc", ..., "rows": how many of F}.
    """
    chosen = _best_known(original - forget.references[::2].mean(axis=0))
    of_forget, of_holdout = (Referenced(rows.network, rows.references[1::2]) for rows in (forget, holdout))
    scores = Scores(of_forget.centred[chosen], of_holdout.centred)
    return {**auc_figures(scores), "rows": len(chosen)}


def _best_known(lead: FloatArray) -> IntArray:
    return np.argsort(-lead, kind="stable")[: math.ceil(MOST_MEMORISED * len(lead))]


def _without_each(models: FloatArray) -> FloatArray:
    """For each model the mean of the others: float64 [M, n]."""
    means: FloatArray = (models.sum(axis=0) - models) / (len(models) - 1)
    return means


def _held_out_aucs(
    forget: FloatArray, holdout: FloatArray, *, of: Callable[[FloatArray], FloatArray]
) -> list[float]:
    centred = (of(models - _without_each(models)) for models in (forget, holdout))
    return [auc(Scores(of_forget, of_holdout)) for of_forget, of_holdout in zip(*centred, strict=True)]


def _spread(rows: Referenced) -> float | None:
    means = _without_each(rows.references)
    usual = float(np.abs(rows.references - means).mean())
    return float(np.abs(rows.network - means).mean()) / usual if usual > 0 else None
