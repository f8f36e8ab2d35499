"""What a step descends on: cross-entropy, plainly, sharpness-aware, or with a sparse gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import (
    Asam,
    GradientSparsity,
    Objective,
    Plain,
    Sam,
    StdLoss,
    TrainingObjective,
    TrainingRecipe,
)
from workers.data.batches import Rows
from workers.training.gradient_sparsity import SparseDescent
from workers.training.gradients import Differentiable, Forward, Loss, Losses
from workers.training.sharpness import Sharpness, sharp_gradient
from workers.training.tally import Tally


def cross_entropy(
    batch: Rows,
    tally: Tally,
    name: str,
    *,
    moves_statistics: bool = True,
    scale: float = 1.0,
    below: Tensor | None = None,
) -> Loss:
    """scale * mean cross-entropy of a batch; its first pass is counted in the tally under `name`.

    `below`: float [B]; a row whose cross-entropy is not below its own bound adds 0 to the mean.
    """

    def loss(forward: Forward) -> Tensor:
        logits = forward(batch.images, moves_statistics=moves_statistics)
        losses = functional.cross_entropy(logits, batch.labels, reduction="none")
        if forward.first:
            tally.add(name, logits, batch.labels, losses.mean())
        if below is not None:
            losses = torch.where(losses < below, losses, 0.0)
        return scale * losses.mean()

    return loss


def recipe_loss(batch: Rows, tally: Tally, recipe: TrainingRecipe, *, scale: float = 1.0) -> Loss:
    """scale * what the recipe trains on: a batch's mean cross-entropy, smoothed, and with `std_loss` more.

    The std-loss adds gamma times the standard deviation of a row's K logits divided by K (Thudi et al. 2022,
    section 6). The first pass is counted in the tally as `train`, without that addition.
    """
    objective = recipe.objective

    def loss(forward: Forward) -> Tensor:
        logits = forward(batch.images)
        value = functional.cross_entropy(logits, batch.labels, label_smoothing=recipe.label_smoothing)
        if forward.first:
            tally.add("train", logits, batch.labels, value)
        if isinstance(objective, StdLoss):
            value = value + objective.gamma / logits.shape[1] * logits.std(1).mean()
        return scale * value

    return loss


def objective_gradient(model: Differentiable, loss: Losses, objective: Objective) -> list[Tensor]:
    """The gradient that the objective has a step follow."""
    match objective:
        case Plain():
            return model.gradient(loss)
        case Sam(rho=rho):
            return sharp_gradient(model, loss, Sharpness(rho=rho, adaptive=False))
        case Asam(rho=rho):
            return sharp_gradient(model, loss, Sharpness(rho=rho, adaptive=True))


class Descent(Protocol):
    """The gradients that the steps of a training follow."""

    @property
    def state(self) -> Mapping[str, Tensor]:
        """What the next step depends on besides weights and optimiser: a checkpoint holds it."""

    def gradient(self, losses: Sequence[Loss], step: int) -> list[Tensor]:
        """That of step `step`, counted from 0; the losses add up to the batch's."""


def descent(model: Differentiable, objective: TrainingObjective, tally: Tally, *, window: int) -> Descent:
    """The gradients of a training with this objective, whose epochs have `window` steps."""
    match objective:
        case GradientSparsity():
            return SparseDescent(model, objective, tally, window=window)
        case StdLoss():  # a loss of its own, followed plainly
            return _Descent(model, Plain())
        case _:
            return _Descent(model, objective)


@dataclass(frozen=True)
class _Descent:
    """Each step's gradient by itself."""

    model: Differentiable
    objective: Objective

    @property
    def state(self) -> Mapping[str, Tensor]:
        return {}

    def gradient(self, losses: Sequence[Loss], step: int) -> list[Tensor]:  # noqa: ARG002 - all are alike
        return objective_gradient(self.model, losses, self.objective)
