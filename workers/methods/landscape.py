"""The loss of F and of R around a network's weights: how the ground lies that unlearning walks on.

Papers' figures, issue 6: "loss landscape over two normalised directions". It describes, and enters no
verdict. In evaluation mode and the weights' own precision, on rows as they stand:

    {"landscape": {"axis": [step],                                        ascending, 0 in the middle
        "forget": [[mean cross-entropy in nats | None]],                  None: no rows, or not finite
        "retain": the same,                                               [i][j]: axis[i] along the first
        "rows": {"forget": n, "retain": n}}}                              direction, axis[j] along the second

Directions are those of Li et al. 2018 (section 4): drawn at random, then scaled filter by filter to the
length of the network's own, so that 1 is a step as long as the filters are, and networks can be compared;
biases and the weights of normalisation layers stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workers.data.batches import RowSource
from workers.data.seeds import generator
from workers.methods.curvature import Progress, Sample
from workers.monitor import Monitor
from workers.training import multi_tensor
from workers.training.gradients import Differentiable

_TINY = 1e-10


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Where the loss is looked at: `side` x `side` places within `reach` of the weights, on some `rows`."""

    side: int = 9
    reach: float = 0.5
    rows: int = 500

    @property
    def axis(self) -> list[float]:
        """The places along one direction, ascending. An odd number of them has an exact 0 in the middle."""
        if self.side == 1:
            return [0.0]
        return [self.reach * (2 * place / (self.side - 1) - 1) for place in range(self.side)]


def landscape(
    network: nn.Module, sets: Mapping[str, RowSource], *, grid: Grid, seed: int, monitor: Monitor
) -> dict[str, Any]:
    """Measure it on a sample of each set, in the layout above; left in evaluation mode.

    Takes side^2 forward passes a batch of 128 rows: with the defaults 81 x 4 a set, 648 in all. The network's
    own weights are never written to, whatever happens: others stand in for them, a pass at a time.

    Args:
        sets: "forget" and "retain"; of larger ones a sample of `grid.rows` is taken, once, into memory.
        seed: decides the directions and the samples.

    Raises:
        DataFault, Cancelled: from the rows and the monitor.
    """
    model = Differentiable(network.eval())
    samples = {name: held(rows, grid.rows, seed) for name, rows in sets.items()}
    first, second = (filter_normalised(model.weights, generator(seed, "landscape", axis)) for axis in (0, 1))
    axis = grid.axis
    batches = sum(sample.count_batches() for sample in samples.values())
    progress = Progress(monitor, grid.side**2 * batches, phase="landscape")
    losses: dict[str, list[Tensor]] = {name: [] for name in samples}
    for one in axis:
        row = multi_tensor.add([weight.detach() for weight in model.weights], first, one)
        for other in axis:
            weights = multi_tensor.add(row, second, other)
            for name, sample in samples.items():
                losses[name].append(mean_loss(model, sample, weights=weights, progress=progress))
    return {
        "landscape": {
            "axis": axis,
            **{name: _square(values, grid.side) for name, values in losses.items()},
            "rows": {name: len(sample) for name, sample in samples.items()},
        }
    }


def held(rows: RowSource, most: int, seed: int) -> Sample:
    """At most so many of the rows, drawn without replacement and kept in memory."""
    drawn = Sample.drawn(rows, most, seed)
    return Sample(rows.take(slice(None) if drawn.places is None else drawn.places))


def filter_normalised(weights: Sequence[Tensor], draw: torch.Generator) -> list[Tensor]:
    """A random direction, each filter as long as the network's; zeros for tensors of one dimension or none.

    A filter is all that makes one output: w[i] of a weight [out, ...]. Drawn on the CPU, so that it is the
    same whatever device the network is on.
    """
    direction = []
    for weight in weights:
        own = weight.detach()
        if own.dim() < 2:
            direction.append(torch.zeros_like(own))
            continue
        drawn = torch.randn(own.shape, generator=draw, dtype=own.dtype).to(own.device)
        across = tuple(range(1, own.dim()))
        lengths = [torch.linalg.vector_norm(part, dim=across, keepdim=True) for part in (own, drawn)]
        direction.append(drawn * (lengths[0] / (lengths[1] + _TINY)))
    return direction


@torch.no_grad()
def mean_loss(
    model: Differentiable, sample: Sample, *, weights: list[Tensor] | None = None, progress: Progress
) -> Tensor:
    """Mean cross-entropy of the sample in nats, float64 [], NaN of no rows. One forward pass a batch.

    `weights`: stand in for the network's own, which are not touched.
    """
    total = torch.zeros((), dtype=torch.float64, device=sample.rows.device)
    for batch in sample.batches():
        progress.check()
        logits = model.logits(batch.images, weights, moves_statistics=True)  # in evaluation mode none move
        total += functional.cross_entropy(logits, batch.labels, reduction="none").double().sum()
        progress.advance()
    return total / len(sample)


def _square(values: list[Tensor], side: int) -> list[list[float | None]]:
    """Numbers on the device as rows of a square."""
    found = torch.stack(values)
    numbers = [
        value if fine else None for value, fine in zip(found.tolist(), found.isfinite().tolist(), strict=True)
    ]
    return [numbers[start : start + side] for start in range(0, len(numbers), side)]
