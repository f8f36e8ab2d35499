from __future__ import annotations

import torch
from torch import Tensor

from app.jobs.params import BuiltIn
from workers.data.batches import Rows
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.evaluate import accuracy
from workers.training.keeping import Average, BestEpoch
from workers.training.loop import Reading


def _network(seed: int) -> Network:
    return build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(seed))


def _put(network: Network, state: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            tensor.copy_(state[name])


def _state(network: Network) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def test_the_average_by_its_own_formula() -> None:
    """a <- d a + (1 - d) w with d = min(decay, (1 + n) / (10 + n)), running statistics and all."""
    network, others = _network(0), [_network(seed) for seed in (1, 2, 3)]
    average = Average(network, 0.15)
    expected = {name: tensor.double() for name, tensor in _state(network).items()}
    for step, (other, decay) in enumerate(zip(others, (0.1, 0.15, 0.15), strict=True)):
        _put(network, _state(other))
        average.follow(step)
        for name, tensor in _state(other).items():
            expected[name] = decay * expected[name] + (1 - decay) * tensor
    last = _state(network)
    average.exchange()
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-6, atol=1e-7)
    average.exchange()
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, last[name])


def test_counters_are_taken_as_they_are() -> None:
    """How many batches a layer has seen is no average."""
    network = _network(0)
    counters = [name for name in network.state_dict() if name.endswith("num_batches_tracked")]
    average = Average(network, 0.9)
    for name in counters:
        network.state_dict()[name].fill_(7)
    average.follow(0)
    assert counters
    assert all(average.state[name] == 7 for name in counters)


def _scored(shares: list[float]) -> list[Reading]:
    return [{"step": float(step), "validation": share} for step, share in enumerate(shares)]


def test_it_is_over_when_the_best_is_old_enough(digits: Rows) -> None:
    """An equal accuracy is no better one; the count begins anew with a better one."""
    watch = BestEpoch(_network(0), digits, patience=2, average=None)
    assert not watch.is_over(_scored([0.1]))
    assert not watch.is_over(_scored([0.1, 0.5, 0.4]))
    assert watch.is_over(_scored([0.1, 0.5, 0.4, 0.5]))
    assert not watch.is_over(_scored([0.1, 0.5, 0.4, 0.6]))
    assert watch.is_over(_scored([0.5, 0.1, 0.2]))


def test_the_first_of_the_best_is_put_back(digits: Rows) -> None:
    """Of networks as good as each other the earlier one is kept, whatever came later."""
    candidates = (_network(seed) for seed in range(6))
    worst, *_, best = sorted(candidates, key=lambda one: accuracy(one, digits)["correct"])
    twice = {name: 2 * tensor if "classifier" in name else tensor for name, tensor in _state(best).items()}
    network = _network(0)
    watch = BestEpoch(network, digits, patience=9, average=None)
    states = [_state(worst), _state(best), twice, _state(worst)]
    shares = []
    for step, state in enumerate(states):
        _put(network, state)
        shares.append(watch.read(step)["validation"])
    assert shares[0] < shares[1] == shares[2] == accuracy(best, digits)["correct"] / len(digits)
    watch.put_back()
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, best.state_dict()[name])


def test_the_average_is_judged_in_the_networks_place(digits: Rows) -> None:
    """What is read and kept is the average; the network goes on from where it was."""
    network, other = _network(0), _network(1)
    average = Average(network, 0.5)
    watch = BestEpoch(network, digits, patience=1, average=average)
    start = _state(network)
    _put(network, _state(other))
    assert watch.read(1)["validation"] == accuracy(_network(0), digits)["correct"] / len(digits)
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in network.state_dict().items())
    watch.put_back()
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, start[name])
