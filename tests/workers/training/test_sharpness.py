from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from workers.training.gradients import Differentiable, Forward, Loss
from workers.training.sharpness import Sharpness, ascent, momentum_gradient, sharp_gradient

Brute = Callable[[Tensor], Tensor]


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _brute(at: Tensor, gradient: Brute, rule: Sharpness, within: Tensor | float = 1.0) -> Tensor:
    """The rule of the papers on flat vectors: T = 1 (SAM) or |w| (ASAM), u = g + s lambda (g_hat - g)."""
    own = gradient(at)
    scale = at.abs() if rule.adaptive else torch.ones_like(at)
    masked = own * within
    shift = rule.rho * scale**2 * masked / (scale * masked).norm()
    return own + rule.weight * (gradient(at + shift) - own)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("weight", [1.0, -1.0, 0.3, -2.0])
@pytest.mark.parametrize("masked", [False, True])
def test_the_rule_on_two_layers(
    two_layers: nn.Module, loss: Loss, brute_gradient: Brute, adaptive: bool, weight: float, masked: bool
) -> None:
    """SAM and ASAM, minimising and maximising, with all weights perturbed or some, against flat vectors."""
    rule = Sharpness(rho=0.7, adaptive=adaptive, weight=weight)
    model = Differentiable(two_layers)
    within = [weight > 0.2 for weight in model.weights] if masked else None
    at = parameters_to_vector(model.weights).detach().clone()
    expected = _brute(at, brute_gradient, rule, _flat(within) if within else 1.0)
    update = sharp_gradient(model, loss, rule, within=within)
    torch.testing.assert_close(_flat(update), expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(parameters_to_vector(model.weights), at)
    assert model.passes == 2


class _Quadratic(nn.Module):
    """L = k w^2 / 2 in one weight."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([at], dtype=torch.float64))

    def forward(self, k: Tensor) -> Tensor:
        return 0.5 * k * self.w.square()


@pytest.mark.parametrize(("weight", "expected"), [(1.0, 6.3), (-1.0, 5.7)])
def test_the_quadratic(weight: float, expected: float) -> None:
    """k = 3, w = 2, rho = .1: minimising gives k w (1 + rho / |w|) = 6.3, maximising 5.7."""
    model = Differentiable(_Quadratic(2.0))
    rule = Sharpness(rho=0.1, adaptive=False, weight=weight)
    update = sharp_gradient(model, lambda forward: forward(torch.tensor(3.0)).sum(), rule)
    assert update[0].item() == pytest.approx(expected, abs=1e-12)


def test_the_quadratic_with_asam() -> None:
    """In one dimension ASAM's step is rho |w|: k w (1 + rho) = 6.6 with the same numbers."""
    model = Differentiable(_Quadratic(2.0))
    rule = Sharpness(rho=0.1, adaptive=True)
    update = sharp_gradient(model, lambda forward: forward(torch.tensor(3.0)).sum(), rule)
    assert update[0].item() == pytest.approx(6.6, abs=1e-12)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("weight", [1.0, -1.0, 0.5])
def test_without_a_step_the_gradient_is_the_plain_one(
    two_layers: nn.Module, loss: Loss, adaptive: bool, weight: float
) -> None:
    """rho = 0 gives the plain gradient to the last bit."""
    model = Differentiable(two_layers)
    plain = model.gradient(loss)
    update = sharp_gradient(model, loss, Sharpness(rho=0.0, adaptive=adaptive, weight=weight))
    assert all(torch.equal(a, b) for a, b in zip(update, plain, strict=True))


def test_the_ascent_has_length_rho(two_layers: nn.Module, loss: Loss) -> None:
    """SAM's step has Euclidean length rho; ASAM's has it after division by |w|."""
    model = Differentiable(two_layers)
    gradient = model.gradient(loss)
    step = _flat(ascent(model.weights, gradient, rho=0.4, adaptive=False))
    assert step.norm().item() == pytest.approx(0.4, rel=1e-9)
    weights = _flat(model.weights).detach()
    adaptive = _flat(ascent(model.weights, gradient, rho=0.4, adaptive=True))
    used = weights != 0
    assert (adaptive[used] / weights[used].abs()).norm().item() == pytest.approx(0.4, rel=1e-9)
    assert not adaptive[~used].any()


def test_no_gradient_no_step(two_layers: nn.Module) -> None:
    """Where the gradient vanishes the step is zero, not undefined."""
    weights: list[Tensor] = list(two_layers.parameters())
    zeros = [torch.zeros_like(weight) for weight in weights]
    assert not _flat(ascent(weights, zeros, rho=0.5, adaptive=False)).any()


def test_statistics_move_once_a_step(normalised: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """After a SAM step the running statistics are those of one plain pass, and so they are step by step."""
    inputs, labels = batch
    plain = copy.deepcopy(normalised)
    model = Differentiable(normalised)

    def loss(forward: Forward) -> Tensor:
        return functional.cross_entropy(forward(inputs), labels)

    for _ in range(3):
        plain(inputs)
        sharp_gradient(model, loss, Sharpness(rho=0.5, adaptive=False))
        for mine, theirs in zip(normalised.buffers(), plain.buffers(), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("weight", [1.0, -1.0, 0.4])
def test_along_the_momentum_it_is_the_same_to_first_order(
    two_layers: nn.Module, loss: Loss, adaptive: bool, weight: float
) -> None:
    """With the gradient as momentum: one pass, and a difference that falls with the square of rho."""
    model = Differentiable(two_layers)
    own = model.gradient(loss)

    def difference(rho: float) -> float:
        rule = Sharpness(rho=rho, adaptive=adaptive, weight=weight)
        before = model.passes
        one = momentum_gradient(model, loss, rule, own)
        assert model.passes == before + 1
        return float((_flat(one) - _flat(sharp_gradient(model, loss, rule))).norm())

    if weight == 1.0:  # there it is the very same rule
        assert difference(0.1) == 0
    else:
        assert difference(0.001) == pytest.approx(difference(0.01) / 100, rel=0.3)


def test_along_the_momentum_statistics_move_where_the_network_is_looked_at(
    normalised: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    """The one pass there is moves them, though it is at shifted weights; those themselves stay."""
    inputs, labels = batch
    shifted = copy.deepcopy(normalised)
    with torch.no_grad():
        length = parameters_to_vector(normalised.parameters()).norm()
        for weight in shifted.parameters():
            weight.add_(weight.abs(), alpha=0.25 / float(length))
    shifted(inputs)
    model = Differentiable(normalised)
    before = parameters_to_vector(model.weights).detach().clone()
    momentum_gradient(
        model,
        lambda forward: functional.cross_entropy(forward(inputs), labels),
        Sharpness(rho=0.25, adaptive=False),
        [weight.detach().abs() for weight in model.weights],
    )
    for mine, theirs in zip(normalised.buffers(), shifted.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(parameters_to_vector(model.weights), before)


def test_a_branch_unused_in_the_second_pass_is_not_left_perturbed(two_layers: nn.Module, loss: Loss) -> None:
    """A weight with a gradient in the first pass and none in the second keeps its value."""
    model = Differentiable(two_layers)
    before = parameters_to_vector(model.weights).detach().clone()

    def stochastic_depth(forward: Forward) -> Tensor:
        return loss(forward) if forward.first else forward(torch.zeros(1, 4, dtype=torch.float64))[0, 0]

    update = sharp_gradient(model, stochastic_depth, Sharpness(rho=1.0, adaptive=False))
    assert not update[0].any()
    assert torch.equal(parameters_to_vector(model.weights), before)
