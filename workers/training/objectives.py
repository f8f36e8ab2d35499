"""What a step descends on: cross-entropy, plainly or sharpness-aware."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from app.jobs.params import Asam, Objective, Plain, Sam
from workers.data.batches import Rows
from workers.training.gradients import Differentiable, Forward, Loss
from workers.training.sharpness import Sharpness, sharp_gradient
from workers.training.tally import Tally


def cross_entropy(
    batch: Rows, tally: Tally, name: str, *, moves_statistics: bool = True, scale: float = 1.0
) -> Loss:
    """scale * mean cross-entropy of a batch; its first pass is counted in the tally under `name`."""

    def loss(forward: Forward) -> Tensor:
        logits = forward(batch.images, moves_statistics=moves_statistics)
        value = functional.cross_entropy(logits, batch.labels)
        if forward.first:
            tally.add(name, logits, batch.labels, value)
        return scale * value

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
