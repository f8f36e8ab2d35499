"""How far two networks' answers are apart: the Jensen-Shannon divergence of their probabilities.

Deep audit, issue 6: "JS against the reference-to-reference floor". Two retrained networks differ too, by the
chance of their training, so a distance from the references means something only beside theirs.

    {"divergence": {"forget" | "holdout": None |                          None: no reference, or not finite
        {"mean", "floor": None | mean, "excess": None | mean - floor,     bits, in [0, 1]; no floor with one
         "references": K}}}                                               reference

Base 2, averaged over rows and over references; the floor over pairs of references. In code that descends
from Chundawat et al. 2023, JSDiv averages over the C classes as well and reverses the arguments: it is a C-th
of something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import rel_entr

from workers.audit.features import probabilities
from workers.audit.outputs import FloatArray, Outputs


def jensen_shannon(first: FloatArray, second: FloatArray) -> FloatArray:
    """The divergence of each row's two distributions over C classes, in bits: float64 [n], in [0, 1].

    [KL(p || m) + KL(q || m)] / 2 with m the mean of p and q. scipy's `jensenshannon` is its square root, and
    NaN where two distributions are so alike that rounding takes the sum below 0.

    Args:
        first: probabilities, float64 [n, C].
        second: as many.
    """
    middle = (first + second) / 2
    nats = (rel_entr(first, middle) + rel_entr(second, middle)).sum(axis=1) / 2
    bits: FloatArray = np.clip(nats / np.log(2), 0.0, 1.0)
    return bits


def divergence_figures(network: Outputs, references: Sequence[Outputs]) -> dict[str, Any] | None:
    """The mean divergence from the references, and theirs from each other, on one set of rows."""
    outputs = (network, *references)
    if not references or not all(len(part) and part.finite.all() for part in outputs):
        return None
    own, *others = (probabilities(part) for part in outputs)
    mean = float(np.mean([jensen_shannon(own, other) for other in others]))
    pairs = [jensen_shannon(one, other) for one, other in combinations(others, 2)]
    floor = float(np.mean(pairs)) if pairs else None
    excess = None if floor is None else mean - floor
    return {"mean": mean, "floor": floor, "excess": excess, "references": len(references)}
