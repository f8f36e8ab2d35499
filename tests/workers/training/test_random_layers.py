"""Layers that draw at random: what they draw is a function of the seed and the step."""

from __future__ import annotations

import pytest
import torch

from app.jobs.params import Asam, Objective, Plain, Torchvision, TrainingRecipe
from workers.data.batches import Rows
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.train import Lesson, fit

_EPOCHS = 4


class _StopsAfter(Silent):
    """Breaks off after so many steps; keeps the checkpoint."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._left = steps

    def check_cancelled(self) -> None:
        if self._left == 0:
            raise Cancelled
        self._left -= 1


def _rows() -> Rows:
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (24, 3, 32, 32), dtype=torch.uint8, generator=draw)
    return Rows(images.contiguous(memory_format=torch.channels_last), torch.arange(24) % 3)


def _network() -> Network:
    dropping = Torchvision(family="torchvision", name="mobilenet_v3_small", arguments={"dropout": 0.5})
    return build(dropping, 3, (32, 32, 3), torch.Generator().manual_seed(0))


def _trained(monitor: Silent, objective: Objective, seed: int = 0) -> dict[str, torch.Tensor]:
    network = _network()
    recipe = TrainingRecipe(epochs=_EPOCHS, batch_size=12, learning_rate=0.01, objective=objective)
    fit(network, Lesson(_rows(), recipe, seed), monitor)
    return network.state_dict()


@pytest.mark.parametrize("objective", [Plain(), Asam(name="asam")], ids=["plain", "asam"])
def test_a_job_that_is_resumed_draws_what_it_would_have_drawn(objective: Objective) -> None:
    """Whatever the global generator was used for in between; and it is left as it was."""
    state = torch.get_rng_state()
    whole = _trained(Silent(), objective)
    assert torch.equal(torch.get_rng_state(), state)

    broken = _StopsAfter(5)
    with pytest.raises(Cancelled):
        _trained(broken, objective)
    with torch.random.fork_rng(devices=[]):
        torch.rand(100)
        resumed = _trained(Silent(broken.checkpoint), objective)
    for name, tensor in whole.items():
        assert torch.equal(resumed[name], tensor), name


def test_another_seed_draws_otherwise() -> None:
    """Dropout does something here."""
    first, second = _trained(Silent(), Plain()), _trained(Silent(), Plain(), seed=1)
    assert any(not torch.equal(tensor, second[name]) for name, tensor in first.items())
