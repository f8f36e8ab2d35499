from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from workers.training.gradients import Differentiable, Loss
from workers.training.optimiser import Sgd
from workers.training.sharpness import Sharpness, sharp_gradient


def _weights(seed: int = 0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in [(3, 4), (5,), (2, 3, 1, 1)]]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_it_is_the_sgd_of_pytorch(momentum: float, nesterov: bool) -> None:
    """Weights agree with torch.optim.SGD over ten steps of changing rates, with weight decay."""
    weights = _weights()
    theirs = [nn.Parameter(weight.clone()) for weight in weights]
    mine = Sgd(weights, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
    reference = torch.optim.SGD(theirs, lr=1.0, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
    for step in range(10):
        gradients = _weights(seed=step + 1)
        mine.step(gradients, 0.1 / (step + 1))
        reference.param_groups[0]["lr"] = 0.1 / (step + 1)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        reference.step()
    for weight, parameter in zip(weights, theirs, strict=True):
        torch.testing.assert_close(weight, parameter.detach(), rtol=1e-12, atol=1e-13)


def test_the_gradients_are_left_alone() -> None:
    """A step does not write into the gradients it is given."""
    weights, gradients = _weights(), _weights(seed=1)
    before = [gradient.clone() for gradient in gradients]
    Sgd(weights, momentum=0.9, weight_decay=0.1, nesterov=True, mask=[w > 0 for w in weights]).step(
        gradients, 0.1
    )
    assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_masked_weights_never_move(
    two_layers: nn.Module, loss: Loss, momentum: float, nesterov: bool
) -> None:
    """After 100 sharp steps with momentum and weight decay, weights outside the mask have the same bits."""
    model = Differentiable(two_layers)
    mask = [weight > 0 for weight in model.weights]
    before = [weight.detach().clone() for weight in model.weights]
    optimiser = Sgd(model.weights, momentum=momentum, nesterov=nesterov, weight_decay=5e-2, mask=mask)
    for _ in range(100):
        optimiser.step(sharp_gradient(model, loss, Sharpness(rho=0.1, adaptive=True)), 0.1)
    for weight, old, moves in zip(model.weights, before, mask, strict=True):
        assert torch.equal(weight[~moves].view(torch.int64), old[~moves].view(torch.int64))
        assert not torch.isclose(weight[moves], old[moves]).any()


def test_a_mask_gives_the_unmasked_step_inside() -> None:
    """Inside the mask a step is the one that would be taken without it."""
    masked, free, gradients = _weights(), _weights(), _weights(seed=1)
    mask = [weight > 0 for weight in masked]
    Sgd(masked, momentum=0.9, weight_decay=0.1, mask=mask).step(gradients, 0.1)
    Sgd(free, momentum=0.9, weight_decay=0.1).step(gradients, 0.1)
    for one, other, inside in zip(masked, free, mask, strict=True):
        assert torch.equal(one[inside], other[inside])
