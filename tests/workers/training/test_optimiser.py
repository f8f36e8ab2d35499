from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workers.training.gradients import Differentiable, Loss
from workers.training.optimiser import AdamW, Optimiser, Sgd
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


def _optimiser(name: str, weights: list[Tensor], **given: Any) -> Optimiser:
    if name == "sgd":
        return Sgd(weights, momentum=0.9, weight_decay=0.1, **given)
    return AdamW(weights, momentum=0.9, second_momentum=0.99, weight_decay=0.1, **given)


def test_it_is_the_adamw_of_pytorch() -> None:
    """Weights agree with torch.optim.AdamW over ten steps of changing rates, with weight decay."""
    weights = _weights()
    theirs = [nn.Parameter(weight.clone()) for weight in weights]
    mine = AdamW(weights, momentum=0.8, second_momentum=0.95, weight_decay=0.01)
    reference = torch.optim.AdamW(theirs, lr=1.0, betas=(0.8, 0.95), weight_decay=0.01)
    for step in range(10):
        gradients = _weights(seed=step + 1)
        mine.step(gradients, 0.1 / (step + 1))
        reference.param_groups[0]["lr"] = 0.1 / (step + 1)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        reference.step()
    for weight, parameter in zip(weights, theirs, strict=True):
        torch.testing.assert_close(weight, parameter.detach(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_masked_weights_never_move_under_any_optimiser(name: str) -> None:
    """Weights outside the mask keep their bits through decay, momentum and clipping; those inside move."""
    weights = _weights()
    mask, before = [weight > 0 for weight in weights], _weights()
    chosen = _optimiser(name, weights, mask=mask, clip_norm=0.5)
    for step in range(20):
        chosen.step(_weights(seed=step + 1), 0.1)
    for weight, old, moves in zip(weights, before, mask, strict=True):
        assert torch.equal(weight[~moves].view(torch.int64), old[~moves].view(torch.int64))
        assert not torch.isclose(weight[moves], old[moves]).any()


@pytest.mark.parametrize("masked", [False, True])
def test_a_long_gradient_is_shortened_and_a_short_one_is_not(masked: bool) -> None:
    """As torch.nn.utils.clip_grad_norm_ does, over what the mask lets through; decay is not clipped."""
    for limit in (0.5, 1e6):
        weights, gradients = _weights(), _weights(seed=1)
        mask = [weight > 0 for weight in weights]
        before = [weight.clone() for weight in weights]
        seen = [g * m if masked else g for g, m in zip(gradients, mask, strict=True)]
        leaves = [nn.Parameter(weight.clone()) for weight in weights]
        for leaf, gradient in zip(leaves, seen, strict=True):
            leaf.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_(leaves, limit)
        Sgd(
            weights,
            momentum=0.0,
            weight_decay=0.1,
            mask=mask if masked else None,
            clip_norm=limit,
        ).step(gradients, 1.0)
        for weight, old, leaf, inside in zip(weights, before, leaves, mask, strict=True):
            decay = 0.1 * old * (inside if masked else 1)
            assert leaf.grad is not None
            torch.testing.assert_close(weight, old - leaf.grad - decay, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_state_is_all_that_the_next_step_depends_on(name: str) -> None:
    """Copied into a fresh optimiser over the same weights, it gives the same next step."""
    weights = _weights()
    first = _optimiser(name, weights)
    for step in range(3):
        first.step(_weights(seed=step + 1), 0.1)
    again = [weight.clone() for weight in weights]
    second = _optimiser(name, again)
    for mine, theirs in zip(second.state, first.state, strict=True):
        mine.copy_(theirs)
    first.step(_weights(seed=9), 0.1)
    second.step(_weights(seed=9), 0.1)
    assert all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))
