"""How ready a network is for deletions: what makes forgetting hard, before there is anything to forget.

All of it is taken at the trained weights, in evaluation mode and float32, on training rows as they stand. No
figure is a promise: what a deletion took is measured by its audit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from app.jobs.params import TrainingRecipe
from workers.data.batches import RowSource
from workers.data.seeds import generator
from workers.methods.curvature import MeanLoss, Progress, Sample, count, flat
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.training.evaluate import accuracy
from workers.training.gradients import Differentiable
from workers.training.schedule import LearningRate

_MODERATE, _LARGE = 0.05, 0.20  # differences of accuracy on training rows and on others
_LATE = 0.5  # a mean confidence below it: the row was not known for half of the training
_QUANTILES = (0.5, 0.9, 0.99)
_SETTLED = 1e-4  # by how much of itself the eigenvalue still changes
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A trained network and what is known of its training.

    Attributes:
        network: At its weights; left in evaluation mode.
        rows: What it was trained on, and may still be read.
        validation: Rows that it was not trained on.
        recipe: How it was trained, if that is known.
        beginning: Its weights before the first step, if they are known: float [d].
        doubts: How late it learned each row, if that was noted: 1 - mean confidence, float64 [n].
        seed: Decides which rows are looked at, and where the power iteration begins.
        monitor: The way out.
    """

    network: Network
    rows: RowSource
    validation: RowSource
    recipe: TrainingRecipe | None
    beginning: Tensor | None
    doubts: NDArray[np.float64] | None
    seed: int
    monitor: Monitor


def readiness(subject: Subject, *, rows: int, iterations: int) -> dict[str, Any]:
    """Measure a network's readiness on at most so many of its rows.

    Returns:
        {"rows", "accuracy": {"train" | "validation": {"correct", "n"}}, "gap": of these accuracies,
         "gradient": {"mean" | "batch": {"l1", "l2", "weighted_l1", "weighted_l2"}},
         "curvature": {"eigenvalue", "times_squared_norm", "residual", "iterations"},
         "unrolled": {"steps", "mean_rate", "distance", "error", "bound"} or None,
         "memorisation": {"late", "quantiles"} or None, "effort", "sentence", "passes", "seconds"}

    Raises:
        NoStep: a layer has no second derivative.
        Cancelled: from the monitor.
    """
    started = time.perf_counter()
    network, sample = subject.network.eval(), Sample.drawn(subject.rows, rows, subject.seed)
    model = Differentiable(network)
    size = (subject.recipe or TrainingRecipe()).batch_size
    total = sample.count_batches(size) + iterations * sample.count_batches()
    progress = Progress(subject.monitor, total, phase="measuring")
    loss = MeanLoss(model, _summed, weight_decay=0.0, progress=progress)
    gradient = _gradients(loss, sample, size)
    curvature = top_eigenvalue(loss, sample, iterations=iterations, seed=subject.seed)
    counts = {
        "train": accuracy(network, subject.rows, sample.places),
        "validation": accuracy(network, subject.validation),
    }
    found = {
        "rows": len(sample),
        "accuracy": counts,
        "gap": _gap(counts),
        "gradient": gradient,
        "curvature": curvature,
        "unrolled": _unrolled(subject, model, curvature["eigenvalue"]),
        "memorisation": None if subject.doubts is None else _tail(subject.doubts),
    }
    return found | {
        "effort": effort(found),
        "sentence": sentence(found),
        "passes": model.passes,
        "seconds": time.perf_counter() - started,
    }


def _summed(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum")


def _gradients(loss: MeanLoss, sample: Sample, size: int) -> dict[str, dict[str, float]]:
    """Norms of the sample's mean gradient, and the mean norms of those of batches as training takes them.

    A weighted gradient is w * dL/dw: where a scale of weights does not matter, as before batch normalisation,
    it does not change with that scale, as the gradient itself does.
    """
    weights = flat([weight.detach() for weight in loss.model.weights])
    total = torch.zeros_like(weights)
    lengths = []
    for batch in sample.batches(size):
        own = loss.gradient(Sample(batch))
        lengths.append(_norms(own, weights))
        total += own * (len(batch) / len(sample))
    means = {name: float(np.mean([each[name] for each in lengths])) for name in lengths[0]}
    return {"mean": _norms(total, weights), "batch": means}


def _norms(gradient: Tensor, weights: Tensor) -> dict[str, float]:
    weighted = gradient * weights
    return {
        "l1": float(gradient.abs().sum()),
        "l2": float(gradient.norm()),
        "weighted_l1": float(weighted.abs().sum()),
        "weighted_l2": float(weighted.norm()),
    }


def top_eigenvalue(loss: MeanLoss, sample: Sample, *, iterations: int, seed: int) -> dict[str, float]:
    """The Hessian's largest eigenvalue by power iteration, with as many products at most.

    What is found first is the eigenvalue of the largest size. If that is negative, the iteration begins anew
    on H - lambda I, whose largest is the one that is wanted. `residual`: |H v - lambda v| / |lambda|.
    `times_squared_norm`: lambda * |w|^2, which a mere scale of the weights does not change where it does not
    matter to the network.
    """
    weights = flat([weight.detach() for weight in loss.model.weights])
    taken, shift = 0, 0.0
    while True:
        draw = torch.randn(count(loss.model.weights), generator=generator(seed, "power"))
        vector = draw.to(weights) / draw.norm()
        value, residual = math.nan, math.inf
        while taken < iterations:
            image = loss.product(sample, vector) - shift * vector
            taken += 1
            before, value = value, float(vector @ image)
            residual = float((image - value * vector).norm()) / max(abs(value + shift), _TINY)
            vector = image / image.norm().clamp(min=_TINY)
            if abs(value - before) <= _SETTLED * abs(value):
                break
        if shift or value >= 0 or taken >= iterations:
            break
        shift = value
    value += shift
    return {
        "eigenvalue": value,
        "times_squared_norm": value * float(weights @ weights),
        "residual": residual,
        "iterations": taken,
    }


def _unrolled(subject: Subject, model: Differentiable, eigenvalue: float) -> dict[str, float] | None:
    """How far first-order unlearning is from retraining, estimated as by Thudi et al. 2022, section 5.

    With eta the mean rate, t the steps and D the distance from the first weights to the last, `error` is
    eta^2 * lambda * D / t * (t^2 - t) / 2, as in their code. `bound`, eta * lambda * D * (t - 1) / 2, has
    the units of a distance of weights. Momentum is counted in the rate; decay and normalisation are not in
    the derivation: the figures compare networks that were trained alike. None where the training is not
    known, or was not by SGD.
    """
    recipe = subject.recipe
    if recipe is None or subject.beginning is None or recipe.optimiser != "sgd":
        return None
    steps = recipe.epochs * math.ceil(len(subject.rows) / recipe.batch_size)
    rate = LearningRate(
        peak=recipe.learning_rate,
        steps=steps,
        schedule=recipe.schedule,
        warmup_share=recipe.warmup_share,
    )
    mean_rate = sum(map(rate.at, range(steps))) / steps / (1 - recipe.momentum)
    here = flat([weight.detach() for weight in model.weights])
    distance = float((here - subject.beginning.to(here)).norm())
    return {
        "steps": steps,
        "mean_rate": mean_rate,
        "distance": distance,
        "error": mean_rate**2 * eigenvalue * distance * (steps - 1) / 2,
        "bound": mean_rate * eigenvalue * distance * (steps - 1) / 2,
    }


def _tail(doubts: NDArray[np.float64]) -> dict[str, Any]:
    """How many rows were learned late, and how late: those have to be known by heart."""
    return {
        "late": float((doubts > _LATE).mean()),
        "quantiles": {str(q): float(np.quantile(doubts, q)) for q in _QUANTILES},
    }


def _gap(counts: Mapping[str, Mapping[str, int]]) -> float | None:
    train, validation = (_share(counts[name]) for name in ("train", "validation"))
    return None if train is None or validation is None else train - validation


def _share(counts: Mapping[str, int]) -> float | None:
    return counts["correct"] / counts["n"] if counts["n"] else None


Effort = Literal["small", "moderate", "large", "unknown"]


def effort(found: Mapping[str, Any]) -> Effort:
    """How much a deletion of random rows has to change: by the gap, or else by how many were learned late."""
    gap, tail = found["gap"], found["memorisation"]
    measure = gap if gap is not None else None if tail is None else tail["late"]
    if measure is None:
        return "unknown"
    return "large" if measure > _LARGE else "moderate" if measure > _MODERATE else "small"


def sentence(found: Mapping[str, Any]) -> str:
    """How hard unlearning will be, in one sentence, with the figures that say so."""
    gap, tail = found["gap"], found["memorisation"]
    late = "" if tail is None else f", and {tail['late']:.0%} of its rows were learned late"
    match effort(found):
        case "unknown":
            return "How hard unlearning will be cannot be said without validation rows or a training record."
        case "small":
            begin = "Unlearning should be easy: the network hardly treats its own rows unlike others"
        case "moderate":
            begin = "Unlearning should be feasible: the network knows some of its rows by heart"
        case _:
            begin = "Unlearning will be hard: the network knows many of its rows by heart"
    if gap is None:
        return f"{begin}{late}."
    return f"{begin} ({100 * gap:.0f} points of accuracy between them and unseen ones{late})."
