"""How sharp the loss of F and of R is at a network's weights: what sharpness-aware unlearning changes.

Papers' figures, issue 6: "sharpness", by the rise of Foret et al. 2021, whose ascent Tang & Khanna 2026 turn
around for F, and by the curvature. They describe, and enter no verdict. In evaluation mode and the weights'
own precision, on rows as they stand:

    {"sharpness": {NETWORK: {"forget" | "retain": {
        "ascent": None | nats,                                            None: no rows, or not finite,
        "top_eigenvalue": None | number, "residual": None | share,        or without a second derivative
        "rows": n}}}}

**ascent** is L(w + rho g / |g|) - L(w), the rise of the loss over SAM's first step (Foret et al., equation
2): about rho |g| + rho^2 / 2 times the curvature along g. **top_eigenvalue** is the largest of the loss's
Hessian, by power iteration; `residual`, |H v - lambda v| / |lambda|, says how far that had come. Neither
stays the same where weights are merely scaled and the network does as before (Dinh et al. 2017): compare
networks of one training only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional

from workers.data.batches import RowSource
from workers.methods.curvature import MeanLoss, NoStep, Progress, Sample, like
from workers.methods.landscape import held, mean_loss
from workers.methods.readiness import top_eigenvalue
from workers.monitor import Monitor
from workers.training import multi_tensor
from workers.training.gradients import Differentiable
from workers.training.sharpness import ascent


@dataclass(frozen=True, kw_only=True)
class Look:
    """How far to look, at how many rows of a set, and by how many products with the Hessian at most."""

    rho: float = 0.05
    rows: int = 500
    iterations: int = 30


def sharpness(
    network: nn.Module, sets: Mapping[str, RowSource], *, look: Look, seed: int, monitor: Monitor
) -> dict[str, dict[str, Any]]:
    """Measure one network on a sample of each set: what stands at NETWORK in the layout above.

    Takes at most 3 + 2 `iterations` passes a batch of 128 rows: with the defaults 63 x 4 a set. The network's
    own weights are never written to, whatever happens; it is left in evaluation mode.

    Args:
        sets: "forget" and "retain"; of larger ones a sample of `look.rows` is taken, once, into memory.
        seed: decides the samples, and where the power iteration begins.

    Raises:
        DataFault, Cancelled: from the rows and the monitor.
    """
    model = Differentiable(network.eval())
    samples = {name: held(rows, look.rows, seed) for name, rows in sets.items()}
    batches = sum(sample.count_batches() for sample in samples.values())
    progress = Progress(monitor, (3 + look.iterations) * batches, phase="sharpness")
    return {
        name: {
            "ascent": ascended(model, sample, rho=look.rho, progress=progress),
            **_curvature(model, sample, iterations=look.iterations, seed=seed, progress=progress),
            "rows": len(sample),
        }
        for name, sample in samples.items()
    }


def ascended(model: Differentiable, sample: Sample, *, rho: float, progress: Progress) -> float | None:
    """L(w + rho g / |g|) - L(w) of the mean cross-entropy in nats, g its gradient; 0 where g is 0.

    None of no rows, and where a loss is not finite. Three passes a batch: gradient, loss there, loss here.
    """
    slopes = like(model.weights, _loss(model, progress).gradient(sample))
    shift = ascent(model.weights, slopes, rho=rho, adaptive=False)
    there = multi_tensor.add([weight.detach() for weight in model.weights], shift)
    raised, own = (mean_loss(model, sample, weights=at, progress=progress) for at in (there, None))
    return _finite(float(raised - own))


def _curvature(
    model: Differentiable, sample: Sample, *, iterations: int, seed: int, progress: Progress
) -> dict[str, float | None]:
    names = {"top_eigenvalue": "eigenvalue", "residual": "residual"}
    if not len(sample):
        return dict.fromkeys(names)
    try:
        found = top_eigenvalue(_loss(model, progress), sample, iterations=iterations, seed=seed)
    except NoStep:
        return dict.fromkeys(names)
    return {name: _finite(found[measured]) for name, measured in names.items()}


def _loss(model: Differentiable, progress: Progress) -> MeanLoss:
    summed = partial(functional.cross_entropy, reduction="sum")
    return MeanLoss(model, summed, weight_decay=0.0, progress=progress)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
