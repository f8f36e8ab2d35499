"""Which weights a training ends with, if not simply the last: their average, or the best epoch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from workers.data.batches import RowSource
from workers.nets.network import Network
from workers.training import multi_tensor
from workers.training.evaluate import accuracy
from workers.training.loop import Reading


class Average:
    """An exponential moving average of everything a network computes with, running statistics included.

    After n steps the decay is (1 + n) / (10 + n) at most, so that the initial weights do not linger in a
    short training.
    """

    def __init__(self, network: Network, decay: float) -> None:
        self._network = network
        self._decay = decay
        self._average = _copied(network)

    @property
    def state(self) -> Mapping[str, Tensor]:
        """What the next step depends on, by name."""
        return self._average

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Step `step`, counted from 0, has been taken."""
        own = self._network.state_dict()
        real = [name for name, tensor in own.items() if tensor.is_floating_point()]
        share = 1 - min(self._decay, (1 + step) / (10 + step))
        multi_tensor.interpolate_([self._average[name] for name in real], [own[name] for name in real], share)
        for name in own.keys() - set(real):
            self._average[name].copy_(own[name])

    @torch.no_grad()
    def exchange(self) -> None:
        """Put the average into the network, and what was there in the average's place."""
        for name, tensor in self._network.state_dict().items():
            kept = tensor.clone()
            tensor.copy_(self._average[name])
            self._average[name].copy_(kept)


class BestEpoch:
    """Keeps the state of the epoch that classifies the validation rows best; the first, of several.

    A reading is {"step", "validation": the accuracy}; the first one is of the network at the beginning.
    """

    def __init__(
        self, network: Network, validation: RowSource, *, patience: int, average: Average | None
    ) -> None:
        """`average`: what is judged and kept instead of the network as it is."""
        self._network = network
        self._validation = validation
        self._patience = patience
        self._average = average
        self._best = _copied(network)
        self._score = torch.full((), -torch.inf, dtype=torch.float64)

    @property
    def state(self) -> Mapping[str, Tensor]:
        return {**{f"best.{name}": tensor for name, tensor in self._best.items()}, "score": self._score}

    @torch.no_grad()
    def read(self, step: int) -> Reading:
        """The accuracy after so many steps; the network is left in evaluation mode."""
        if self._average is not None:
            self._average.exchange()
        counts = accuracy(self._network, self._validation)
        share = counts["correct"] / counts["n"]
        if share > self._score:
            self._score.fill_(share)
            for name, tensor in self._network.state_dict().items():
                self._best[name].copy_(tensor)
        if self._average is not None:
            self._average.exchange()
        return {"step": float(step), "validation": share}

    def is_over(self, readings: Sequence[Reading]) -> bool:
        """Whether the best is `patience` readings old."""
        shares = [reading["validation"] for reading in readings]
        return len(shares) - 1 - shares.index(max(shares)) >= self._patience

    @torch.no_grad()
    def put_back(self) -> None:
        """Put the best epoch's state into the network."""
        for name, tensor in self._network.state_dict().items():
            tensor.copy_(self._best[name])


def _copied(network: Network) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}
