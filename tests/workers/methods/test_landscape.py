"""The landscape against losses written out at weights that were moved by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from app.jobs.params import BuiltIn
from workers.data.batches import Rows
from workers.data.seeds import generator
from workers.methods.landscape import Grid, filter_normalised, landscape
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network

_SMALL = Grid(side=3, reach=0.5, rows=40)


@pytest.fixture
def sets(digits: Rows) -> dict[str, Rows]:
    """30 rows to forget, 130 to keep."""
    return {"forget": digits.take(slice(30)), "retain": digits.take(slice(30, None))}


def test_agrees_with_written_out_losses(
    two_layers: Network, sets: dict[str, Rows], brute_logits: Callable[[Tensor, Rows], Tensor]
) -> None:
    """At every place: the weights moved by hand, the products of matrices, the mean of -log p."""
    grid = Grid(side=3, reach=0.4, rows=1000)
    found = landscape(two_layers, sets, grid=grid, seed=7, monitor=Silent())["landscape"]
    assert found["axis"] == [-0.4, 0.0, 0.4]
    assert found["rows"] == {"forget": 30, "retain": 130}
    weights = list(two_layers.parameters())
    first, second = (
        parameters_to_vector(filter_normalised(weights, generator(7, "landscape", axis))) for axis in (0, 1)
    )
    at = parameters_to_vector(weights).detach()
    for name, rows in sets.items():
        for i, one in enumerate(found["axis"]):
            for j, other in enumerate(found["axis"]):
                logits = brute_logits(at + one * first + other * second, rows)
                loss = (logits.exp().sum(1).log() - logits[torch.arange(len(rows)), rows.labels]).mean()
                assert found[name][i][j] == pytest.approx(float(loss), rel=1e-12)


def test_directions_have_the_lengths_of_the_filters(trained: Network) -> None:
    """Filter by filter; of biases and normalisation they are zero; two draws have little in common."""
    names = [name for name, _ in trained.named_parameters()]
    weights = list(trained.parameters())
    one, other = (filter_normalised(weights, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert any(weight.dim() == 4 for weight in weights)
    for name, weight, step in zip(names, weights, one, strict=True):
        if weight.dim() > 1:
            for filter_, moved in zip(weight.detach(), step, strict=True):
                torch.testing.assert_close(moved.norm(), filter_.norm(), rtol=1e-5, atol=1e-6)
        else:
            assert not step.any(), name
    a, b = parameters_to_vector(one), parameters_to_vector(other)
    assert abs(float(a @ b / (a.norm() * b.norm()))) < 0.1


def test_the_middle_is_the_network_as_it_is(trained: Network, sets: dict[str, Rows]) -> None:
    """Batch normalisation by its running statistics, whatever mode the network came in."""
    network = copy.deepcopy(trained).train()
    found = landscape(network, sets, grid=Grid(side=3, rows=1000), seed=0, monitor=Silent())["landscape"]
    trained.eval()
    for name, rows in sets.items():
        with torch.no_grad():
            expected = functional.cross_entropy(trained(rows.images), rows.labels)
        assert found[name][1][1] == pytest.approx(float(expected), rel=1e-5)
        assert found[name][1][1] < found[name][0][0]  # trained: around it the loss is higher


@pytest.mark.parametrize("steps", [0, 3, 10**6])
def test_the_network_stays_bit_for_bit(
    steps: int, sets: dict[str, Rows], stops_after: Callable[[int], Silent]
) -> None:
    """Weights and running statistics, at the end and when the job is cancelled on the way."""
    network = build(BuiltIn(name="resnet8", width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules())
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    try:
        landscape(network, sets, grid=_SMALL, seed=0, monitor=stops_after(steps))
        assert steps > 10
    except Cancelled:
        assert steps <= 10
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_what_it_costs(two_layers: Network, sets: dict[str, Rows]) -> None:
    """side^2 passes a batch of 128 rows, of a sample that is no larger than asked for."""
    calls: list[int] = []
    two_layers.register_forward_hook(lambda _, inputs, __: calls.append(len(inputs[0])))
    found = landscape(two_layers, sets, grid=_SMALL, seed=0, monitor=Silent())["landscape"]
    assert sorted(calls) == [30] * 9 + [40] * 9
    assert found["rows"] == {"forget": 30, "retain": 40}


def test_the_same_seed_gives_the_same_picture(two_layers: Network, sets: dict[str, Rows]) -> None:
    """To the last bit, and another seed another one."""
    first, again, other = (
        landscape(two_layers, sets, grid=_SMALL, seed=seed, monitor=Silent()) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_says_what_was_not_measured(two_layers: Network, sets: dict[str, Rows]) -> None:
    """No rows, and a network that is not finite: None in every place."""
    none = {"forget": sets["forget"].take(slice(0, 0)), "retain": sets["retain"]}
    found = landscape(two_layers, none, grid=_SMALL, seed=0, monitor=Silent())["landscape"]
    assert found["forget"] == [[None] * 3] * 3
    assert None not in found["retain"][0]
    with torch.no_grad():
        next(two_layers.parameters()).fill_(torch.inf)
    broken = landscape(two_layers, sets, grid=_SMALL, seed=0, monitor=Silent())["landscape"]
    assert broken["retain"] == [[None] * 3] * 3


def test_a_grid_has_the_weights_in_its_middle() -> None:
    """The default is 9 x 9 within half a filter; a single place is the network itself."""
    assert Grid().axis == pytest.approx([-0.5, -0.375, -0.25, -0.125, 0, 0.125, 0.25, 0.375, 0.5], abs=0)
    assert Grid(side=1).axis == [0.0]
