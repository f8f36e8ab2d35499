"""How a method judges its own course: which step's network to keep, and when going on is no use.

The target is the accuracy on F of a network that never saw it, as far as can be guessed. The judge reads at
every window how near the accuracy on F has come to it and how much the accuracy on R and on validation rows
has fallen. None of these rows is one that the audit judges by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from app.jobs.params import Steps
from workers.data.batches import RowSource
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.methods.counterfactual import FEWEST_ROWS, Subjects
from workers.nets.network import Network
from workers.training.evaluate import accuracy
from workers.training.loop import Reading
from workers.training.precision import autocast_dtype

_MOST_ROWS = 400  # of each set at a reading
_LOST = 0.05  # by how much the score has to have fallen, beyond the target, before it is over


@dataclass(frozen=True)
class _Sample:
    """Some rows of a set, always the same."""

    rows: RowSource
    places: Tensor

    @classmethod
    def of(cls, rows: RowSource, seed: int) -> _Sample:
        chosen = torch.from_numpy(sampled_places(len(rows), _MOST_ROWS, seed))
        return cls(rows, chosen.to(rows.index_device))


class Judge:
    """Reads a network at its windows, keeps the state of the best one, and says when it is over."""

    def __init__(
        self, network: Network, parameters: Steps, samples: Mapping[str, _Sample], target: float
    ) -> None:
        self.target = target
        self._network = network
        self._parameters = parameters
        self._samples = samples
        self._autocast = autocast_dtype(parameters.precision, samples["forget"].rows.device)
        self._best = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        # Score of the kept state, and the first reading's accuracies on R and validation rows.
        self._known = torch.full((3,), -torch.inf, dtype=torch.float64)

    @classmethod
    def of(
        cls, network: Network, parameters: Steps, seed: int, rows: Subjects, *, target: float | None
    ) -> Judge | None:
        """A judge of the network, which is at its original weights; None if there is nothing to judge by."""
        if target is None or rows.validation is None or len(rows.validation) < FEWEST_ROWS:
            return None
        sets = {"forget": rows.forget, "retain": rows.retain, "validation": rows.validation}
        samples = {name: _Sample.of(part, derived_seed(seed, "judge", name)) for name, part in sets.items()}
        return cls(network, parameters, samples, target)

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The state that is kept, and what was known when it was."""
        return {**{f"best.{name}": tensor for name, tensor in self._best.items()}, "known": self._known}

    @torch.no_grad()
    def read(self, step: int) -> Reading:
        """Accuracy on the samples, and the score; the network is left in evaluation mode."""
        reading = {"step": float(step)} | {name: self._accuracy(part) for name, part in self._samples.items()}
        if step == 0:
            self._known[1], self._known[2] = reading["retain"], reading["validation"]
        reading["score"] = self._score(reading)
        worth = self._worth(reading)
        if step > 0 and (worth > self._known[0] or self._keep == "last"):
            self._known[0] = worth
            for name, tensor in self._network.state_dict().items():
                self._best[name].copy_(tensor)
        return reading

    def is_over(self, readings: Sequence[Reading]) -> bool:
        """Whether F is forgotten beyond the target twice running, and the score is well below its best."""
        if self._keep == "last" or len(readings) < 4:
            return False
        best = max(reading["score"] for reading in readings[1:])
        return all(
            reading["forget"] < self.target and reading["score"] < best - _LOST for reading in readings[-2:]
        )

    @torch.no_grad()
    def put_back(self) -> None:
        """Put the kept state into the network."""
        own = self._network.state_dict()
        for name, tensor in self._best.items():
            own[name].copy_(tensor)

    def kept(self, readings: Sequence[Reading]) -> Reading:
        """The reading of the state that is kept."""
        if self._keep == "last":
            return readings[-1]
        return max(readings[1:], key=self._worth)

    def forget_accuracy(self) -> float:
        """That of the network as it is; it is left in evaluation mode."""
        return self._accuracy(self._samples["forget"])

    @property
    def _keep(self) -> str:
        return self._parameters.keep

    def _worth(self, reading: Reading) -> float:
        return -abs(reading["forget"] - self.target) if self._keep == "nearest" else reading["score"]

    def _accuracy(self, sample: _Sample) -> float:
        counts = accuracy(self._network, sample.rows, sample.places, autocast=self._autocast)
        return counts["correct"] / counts["n"]

    def _score(self, reading: Reading) -> float:
        """Like the tug of war, with the target and the original in the place of a retrained network."""
        lost = [
            max(0.0, float(before) - reading[name])
            for before, name in zip(self._known[1:], ("retain", "validation"), strict=True)
        ]
        return (1 - abs(reading["forget"] - self.target)) * (1 - lost[0]) * (1 - lost[1])
