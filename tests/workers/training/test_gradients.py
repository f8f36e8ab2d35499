from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from workers.training.gradients import Differentiable, Forward, Loss

Brute = Callable[[Tensor], Tensor]


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def test_gradient_is_that_of_the_written_out_network(
    two_layers: nn.Module, loss: Loss, brute_gradient: Brute
) -> None:
    """At the network's own weights, against matrix products differentiated apart."""
    gradient = Differentiable(two_layers).gradient(loss)
    expected = brute_gradient(parameters_to_vector(two_layers.parameters()).detach())
    torch.testing.assert_close(_flat(gradient), expected, rtol=1e-12, atol=1e-14)


def test_gradient_at_shifted_weights(two_layers: nn.Module, loss: Loss, brute_gradient: Brute) -> None:
    """The gradient is taken at weights + shift, and the network keeps its weights."""
    model = Differentiable(two_layers)
    before = parameters_to_vector(two_layers.parameters()).detach().clone()
    shift = [torch.full_like(weight, 0.3) for weight in model.weights]
    gradient = model.gradient(loss, shift)
    torch.testing.assert_close(_flat(gradient), brute_gradient(before + 0.3), rtol=1e-12, atol=1e-14)
    assert torch.equal(parameters_to_vector(two_layers.parameters()), before)


def test_own_passes_move_statistics_once(normalised: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """A first pass updates the running statistics as a plain forward pass does; a shifted one never does."""
    inputs, labels = batch
    plain = copy.deepcopy(normalised)
    plain(inputs)
    model = Differentiable(normalised)

    def loss(forward: Forward) -> Tensor:
        return functional.cross_entropy(forward(inputs), labels)

    model.gradient(loss)
    model.gradient(loss, [torch.full_like(weight, 0.1) for weight in model.weights])
    for mine, theirs in zip(normalised.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs)


def test_statistics_stand_still_when_told_to(normalised: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """A pass that may not move the statistics gives the same gradient as one that may."""
    inputs, labels = batch
    before = copy.deepcopy(normalised)

    def loss(moves: bool) -> Loss:
        return lambda forward: functional.cross_entropy(forward(inputs, moves_statistics=moves), labels)

    still = Differentiable(normalised).gradient(loss(moves=False))
    for mine, theirs in zip(normalised.buffers(), before.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    moving = Differentiable(normalised).gradient(loss(moves=True))
    for mine, theirs in zip(still, moving, strict=True):
        assert torch.equal(mine, theirs)


def test_weights_that_a_pass_does_not_use_have_gradient_zero(two_layers: nn.Module) -> None:
    """Where the loss does not depend on a weight its gradient is zeros, not missing."""
    model = Differentiable(two_layers)
    gradient = model.gradient(lambda _: model.weights[1].sum())
    for number, part in enumerate(gradient):
        assert torch.equal(part, torch.full_like(part, number == 1))


def test_a_failing_shifted_pass_leaves_the_network_as_it_was(normalised: nn.Module) -> None:
    """There is nothing to restore: an exception in the second pass cannot leave the weights perturbed."""
    before = copy.deepcopy(normalised.state_dict())
    model = Differentiable(normalised)

    def loss(forward: Forward) -> Tensor:
        forward(torch.ones(3, 4, dtype=torch.float64))
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        model.gradient(loss, [torch.ones_like(weight) for weight in model.weights])
    for name, tensor in normalised.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_every_pass_is_counted(two_layers: nn.Module, loss: Loss) -> None:
    """One pass for a loss over one batch, two for a sum over two."""
    model = Differentiable(two_layers)
    model.gradient(loss)
    model.gradient(lambda forward: loss(forward) + loss(forward))
    assert model.passes == 3


def test_bf16_passes_give_float32_logits_and_gradients() -> None:
    """Only the products inside are bfloat16: the logits, and the gradients of the weights, are float32."""
    network = nn.Linear(4, 3, device="meta").to_empty(device="cpu")
    nn.init.ones_(network.weight)
    nn.init.zeros_(network.bias)
    inputs = torch.full((2, 4), 1.001)
    seen: list[Tensor] = []

    def loss(forward: Forward) -> Tensor:
        seen.append(forward(inputs))
        return seen[-1].sum()

    gradient = Differentiable(network, autocast=torch.bfloat16).gradient(loss)
    assert seen[0].dtype == gradient[0].dtype == torch.float32
    assert seen[0][0, 0] == 4.0  # 1.001 is 1 in bfloat16
