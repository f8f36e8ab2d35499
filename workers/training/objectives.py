"""What a step descends on: cross-entropy, plainly or sharpness-aware."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import Asam, Objective, Plain, Sam
from workers.data.batches import Rows
from workers.training.gradients import Differentiable, Forward, Loss
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


def objective_gradient(model: Differentiable, loss: Loss, objective: Objective) -> list[Tensor]:
    """The gradient that the objective has a step follow."""
    match objective:
        case Plain():
            return model.gradient(loss)
        case Sam(rho=rho):
            return sharp_gradient(model, loss, Sharpness(rho=rho, adaptive=False))
        case Asam(rho=rho):
            return sharp_gradient(model, loss, Sharpness(rho=rho, adaptive=True))
