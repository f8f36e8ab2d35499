"""A network small enough to differentiate by hand-written code, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from workers.training.gradients import Loss


@pytest.fixture
def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def two_layers(draw: torch.Generator) -> nn.Module:
    """4 inputs, 5 hidden tanh units, 3 classes; some weights are exactly 0."""
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    network.to_empty(device="cpu")
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64))
            weight.flatten()[0] = 0
    return network


@pytest.fixture
def batch(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Eight inputs of the two-layer network and their labels."""
    inputs = torch.randn(8, 4, generator=draw, dtype=torch.float64)
    return inputs, torch.randint(3, (8,), generator=draw)


@pytest.fixture
def loss(batch: tuple[Tensor, Tensor]) -> Loss:
    """Cross-entropy of the batch, as the training code asks for it."""
    inputs, labels = batch
    return lambda forward: functional.cross_entropy(forward(inputs), labels)


@pytest.fixture
def brute_gradient(two_layers: nn.Module, batch: tuple[Tensor, Tensor]) -> Callable[[Tensor], Tensor]:
    """The gradient of the same loss at a flat vector of weights, from written-out matrix products."""
    inputs, labels = batch

    def gradient(flat: Tensor) -> Tensor:
        at = flat.clone().requires_grad_()
        hidden, bias, output, output_bias = torch.split(at, [20, 5, 15, 3])
        logits = torch.tanh(inputs @ hidden.view(5, 4).T + bias) @ output.view(3, 5).T + output_bias
        log_sum = logits.exp().sum(1).log()
        return torch.autograd.grad((log_sum - logits[torch.arange(8), labels]).mean(), at)[0]

    return gradient


@pytest.fixture
def normalised() -> nn.Module:
    """A network with batch normalisation, in training mode."""
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()
    network.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    norm = network[1]
    assert isinstance(norm, nn.BatchNorm1d)
    norm.reset_running_stats()
    return network.train()
