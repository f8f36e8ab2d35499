"""What attacks look at: one number, or one short vector, a row, from a network's logits on it.

All are computed from logits in float64, because probabilities round to 0 and 1 just where memory shows, and
all need finite logits. Serves the customary attacks of the fast audit and, through phi, every other attack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from scipy.special import entr, expit, log_expit, logsumexp, softmax

from workers.audit.outputs import FloatArray, Outputs

Feature = Callable[[Outputs], FloatArray]


def margins(outputs: Outputs) -> FloatArray:
    """phi = z_y - logsumexp(z_k, k != y) = log(p_y / (1 - p_y)): float64 [n], from finite logits.

    The logit-scaled confidence of Carlini et al. 2022 (section V), taken from logits because probabilities
    saturate: a network that has learned a row by heart gives it a large phi.
    """
    rows = np.arange(len(outputs))
    others = outputs.logits.copy()
    others[rows, outputs.labels] = -np.inf
    phi: FloatArray = outputs.logits[rows, outputs.labels] - logsumexp(others, axis=1)
    return phi


def probabilities(outputs: Outputs) -> FloatArray:
    """softmax of the logits: float64 [n, C]."""
    shares: FloatArray = softmax(outputs.logits, axis=1)
    return shares


def correctness(outputs: Outputs) -> FloatArray:
    """1 where the row is classified as labelled, else 0: float64 [n]."""
    return outputs.correct.astype(np.float64)


def confidence(outputs: Outputs) -> FloatArray:
    """p_y: float64 [n] in [0, 1]."""
    share: FloatArray = probabilities(outputs)[np.arange(len(outputs)), outputs.labels]
    return share


def losses(outputs: Outputs) -> FloatArray:
    """Cross-entropy -log p_y in nats: float64 [n], at least 0."""
    loss: FloatArray = -log_expit(margins(outputs))
    return loss


def entropy(outputs: Outputs) -> FloatArray:
    """-sum_k p_k log p_k in nats: float64 [n]. It ignores y, so it takes wrong and certain for well known."""
    nats: FloatArray = entr(probabilities(outputs)).sum(axis=1)
    return nats


def modified_entropy(outputs: Outputs) -> FloatArray:
    """-(1 - p_y) log p_y - sum_{k != y} p_k log(1 - p_k) in nats: float64 [n].

    Song & Mittal 2021 (section 3.2): 0 where right and certain, unbounded where wrong and certain. Much
    published code takes log p_k for log(1 - p_k), which almost reverses the order.
    """
    rows, phi = np.arange(len(outputs)), margins(outputs)
    terms = probabilities(outputs) * -_log_complements(outputs)
    terms[rows, outputs.labels] = -expit(-phi) * log_expit(phi)
    nats: FloatArray = terms.sum(axis=1)
    return nats


def _log_complements(outputs: Outputs) -> FloatArray:
    """log(1 - p_k): float64 [n, C]. Only the largest p_k can round to 1, so that one comes from its phi."""
    rows, top = np.arange(len(outputs)), outputs.logits.argmax(axis=1)
    shares = probabilities(outputs)
    shares[rows, top] = 0.0
    logs: FloatArray = np.log1p(-shares)
    logs[rows, top] = log_expit(-margins(Outputs(outputs.logits, top)))
    return logs


# The five features of the support vector attack (Jia et al. 2023), each [n] or [n, C].
FEATURES: Final[Mapping[str, Feature]] = {
    "correctness": correctness,
    "confidence": confidence,
    "entropy": entropy,
    "modified_entropy": modified_entropy,
    "probabilities": probabilities,
}
