"""A network that was trained a little, and rows of it to keep and to forget."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from app.jobs.params import BuiltIn, SklearnDigits, Steps, TrainingRecipe
from models_store.rows import RowSet
from workers.data.batches import Rows
from workers.data.digits import DigitsReader
from workers.data.loading import load
from workers.methods.past import Past
from workers.methods.run import Run
from workers.monitor import Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.train import Lesson, fit

RECIPE = TrainingRecipe(epochs=30, batch_size=32, precision="fp32")


@pytest.fixture(scope="session")
def mixed(digits: Rows) -> Rows:
    """160 digits, the first 24 of them with wrong labels."""
    wrong = torch.arange(160) < 24
    return Rows(digits.images, torch.where(wrong, (digits.labels + 3) % 10, digits.labels))


@pytest.fixture(scope="session")
def trained(mixed: Rows) -> Network:
    """A small convolutional network that has learned the digits and memorised the wrong ones."""
    network = build(BuiltIn(width=0.5), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    fit(network, Lesson(mixed, RECIPE, 0), Silent())
    return network


@pytest.fixture
def start(trained: Network, mixed: Rows) -> Callable[..., Run]:
    """A fresh run over the trained network: 136 right rows to keep, 24 wrong ones to forget."""

    def start(**changes: Any) -> Run:
        given: dict[str, Any] = {
            "network": copy.deepcopy(trained),
            "retain": mixed.take(slice(24, None)),
            "forget": mixed.take(slice(24)),
            "past": Past(
                count=160,
                forgotten=torch.arange(24),
                rows=lambda: mixed,
                seed=0,
                device_type="cpu",
                snapshots=[],
            ),
            "recipe": RECIPE,
            "seed": 5,
            "monitor": Silent(),
        }
        return Run(**(given | changes))

    return start


@pytest.fixture(scope="session")
def unseen() -> Rows:
    """Rightly labelled digits that the network has never seen."""
    return Rows.of(*load(DigitsReader("", SklearnDigits()), RowSet.of(range(160, 460)), (8, 8, 1)))


@pytest.fixture
def judged(start: Callable[..., Run], unseen: Rows) -> Callable[..., Run]:
    """A run with unseen rows, and unseen rows of those who label wrongly."""
    wrong = Rows(unseen.images[:60], (unseen.labels[:60] + 3) % 10)
    return lambda **changes: start(**{"validation": unseen, "kin": wrong, **changes})


@pytest.fixture
def two_layers() -> Network:
    """64 pixels, 6 tanh units, 10 classes in float64: small enough for a brute-force twin."""
    with torch.device("meta"):
        body = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 10))
        network = Network(lambda _: body, 1, torch.Generator())
    network.to_empty(device="cpu").double()
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        network.mean.fill_(80)
        network.std.fill_(90)
        for weight in network.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=draw, dtype=torch.float64))
    return network


@pytest.fixture
def brute_logits() -> Callable[[Tensor, Rows], Tensor]:
    """The two-layer network's outputs at a flat vector of weights, from written-out matrix products."""

    def logits(flat: Tensor, rows: Rows) -> Tensor:
        hidden, bias, output, output_bias = torch.split(flat, [384, 6, 60, 10])
        pixels = (rows.images.flatten(1).double() - 80) / 90
        return torch.tanh(pixels @ hidden.view(6, 64).T + bias) @ output.view(10, 6).T + output_bias

    return logits


@pytest.fixture
def brute_gradient(brute_logits: Callable[[Tensor, Rows], Tensor]) -> Callable[[Tensor, Rows], Tensor]:
    """The gradient of the mean cross-entropy of the two-layer network."""

    def gradient(flat: Tensor, rows: Rows) -> Tensor:
        at = flat.clone().requires_grad_()
        logits = brute_logits(at, rows)
        losses = logits.exp().sum(1).log() - logits[torch.arange(len(rows)), rows.labels]
        return torch.autograd.grad(losses.mean(), at)[0]

    return gradient


@pytest.fixture
def descend() -> Callable[..., Tensor]:
    """SGD with momentum and decay by hand: `gradient(w, step)` for every step of the parameters' budget."""

    def walk(
        at: Tensor, p: Steps, gradient: Callable[[Tensor, int], Tensor], mask: Tensor | None = None
    ) -> Tensor:
        velocity = torch.zeros_like(at)
        for step in range(p.steps):
            moved = gradient(at, step) + p.weight_decay * at
            velocity = p.momentum * velocity + (moved if mask is None else moved * mask)
            at = at - p.learning_rate * (1 - step / p.steps) * velocity
        return at

    return walk
