"""How a loss curves over the remaining rows: what both methods that use it need, memory included.

Vectors are flat: all weights of the network one after another, in the order of its parameters. Everything is
computed in evaluation mode, in the weights' own precision, on rows as they stand.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from workers.data.batches import Rows, RowSource
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.training import multi_tensor
from workers.training.gradients import Differentiable

_BATCH_ROWS = 128  # a product with the Hessian holds about three times what a training step does
_COLUMNS = 32  # of the Hessian, computed at once

RowLoss = Callable[[Tensor, Tensor], Tensor]


class NoStep(Exception):
    """The curvature gives no step that could be taken; the message says why, and what to do."""


class TooLarge(NoStep):
    """What is asked for does not fit into memory; found out before anything is computed."""


@dataclass(frozen=True)
class Sample:
    """Some rows of a set, in order; all of them without places."""

    rows: RowSource
    places: Tensor | None = None

    @classmethod
    def drawn(cls, rows: RowSource, most: int, seed: int) -> Sample:
        """At most so many rows, drawn without replacement."""
        if len(rows) <= most:
            return cls(rows)
        chosen = torch.from_numpy(sampled_places(len(rows), most, derived_seed(seed, "curvature")))
        return cls(rows, chosen.to(rows.index_device))

    def __len__(self) -> int:
        return len(self.rows) if self.places is None else len(self.places)

    def batches(self, size: int = _BATCH_ROWS) -> Iterator[Rows]:
        """Every row once, as it stands."""
        return self.rows.in_order(size, self.places)

    def count_batches(self, size: int = _BATCH_ROWS) -> int:
        """How many of them there are."""
        return math.ceil(len(self) / size)


@dataclass
class Progress:
    """Tells the monitor how many of the batches are done, and lets it end the work between two passes."""

    monitor: Monitor
    total: int
    done: int = 0
    phase: str = "unlearn"

    def check(self) -> None:
        """Raises Cancelled."""
        self.monitor.check_cancelled()

    def advance(self) -> None:
        """Another batch is done."""
        self.done += 1
        self.monitor.progress(self.phase, self.done, self.total)


class MeanLoss:
    """L(w) = the mean of a loss over rows + weight_decay / 2 * |w|^2, at the network's own weights."""

    def __init__(
        self, model: Differentiable, loss: RowLoss, *, weight_decay: float, progress: Progress
    ) -> None:
        """`loss`: of outputs [B, ...] and labels [B], summed over the rows."""
        self.model = model
        self._loss = loss
        self._weight_decay = weight_decay
        self._progress = progress

    def gradient(self, sample: Sample) -> Tensor:
        """The gradient [d]. One pass a batch."""
        total = self._weight_decay * flat([weight.detach() for weight in self.model.weights])
        for batch in self._announced(sample):
            total += flat(self._slopes(batch, differentiable=False)) / len(sample)
        return total

    def product(self, sample: Sample, vectors: Tensor) -> Tensor:
        """H v for the Hessian H and each of the vectors [d] or [k, d], by differentiating the gradient.

        1 + k passes a batch: the backward pass through a gradient costs about what one through the loss
        does, together with its forward pass.
        """
        weights, many = self.model.weights, vectors.dim() > 1
        parts = like(weights, vectors)
        total = self._weight_decay * vectors
        for batch in self._announced(sample):
            bends = self._bends(batch, parts, many=many)
            self.model.passes += len(vectors) if many else 1
            total += flat(bends, start=1 if many else 0) / len(sample)
        return total

    def hessian(self, sample: Sample) -> Tensor:
        """All of it, float64 [d, d], a few columns at a time."""
        size = count(self.model.weights)
        like = self.model.weights[0]
        whole = torch.empty(size, size, dtype=torch.float64, device=like.device)
        for start in range(0, size, _COLUMNS):
            places = torch.arange(start, min(start + _COLUMNS, size), device=like.device)
            basis = torch.zeros(len(places), size, dtype=like.dtype, device=like.device)
            basis[torch.arange(len(places), device=like.device), places] = 1
            whole[places] = self.product(sample, basis).double()
        return whole

    def count_hessian_batches(self, sample: Sample) -> int:
        """How many batches `hessian` goes through."""
        return sample.count_batches() * math.ceil(count(self.model.weights) / _COLUMNS)

    def _slopes(self, batch: Rows, *, differentiable: bool) -> tuple[Tensor, ...]:
        value = self._loss(outputs(self.model, batch.images), batch.labels)
        return torch.autograd.grad(
            value,
            self.model.weights,
            create_graph=differentiable,
            allow_unused=True,
            materialize_grads=True,
        )

    def _bends(self, batch: Rows, vectors: list[Tensor], *, many: bool) -> tuple[Tensor, ...]:
        slopes = self._slopes(batch, differentiable=True)
        try:
            return torch.autograd.grad(
                slopes,
                self.model.weights,
                vectors,
                is_grads_batched=many,
                allow_unused=True,
                materialize_grads=True,
            )
        except RuntimeError as fault:
            if "is not implemented" not in str(fault):
                raise
            raise NoStep("a layer of the network has no second derivative in PyTorch") from fault

    def _announced(self, sample: Sample) -> Iterator[Rows]:
        for batch in sample.batches():
            self._progress.check()
            yield batch
            self._progress.advance()


def outputs(model: Differentiable, images: Tensor, weights: list[Tensor] | None = None) -> Tensor:
    """One counted forward pass that can be differentiated twice, at other weights if they are given."""
    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
        return model.logits(images, weights, moves_statistics=True)


def count(weights: Sequence[Tensor]) -> int:
    """d, the number of all weights."""
    return sum(weight.numel() for weight in weights)


def flat(tensors: Sequence[Tensor], start: int = 0) -> Tensor:
    """One vector of a list of tensors; the dimensions before `start` are kept."""
    return torch.cat([tensor.flatten(start) for tensor in tensors], -1)


@torch.no_grad()
def move(model: Differentiable, step: Tensor) -> None:
    """Add a step [d] to the weights, in place. Raises NoStep if it is not finite."""
    multi_tensor.add_(model.weights, like(model.weights, finite(step, "the step")))


def finite(values: Tensor, what: str) -> Tensor:
    """The values. Raises NoStep if one is not finite."""
    if not bool(values.isfinite().all()):
        raise NoStep(f"{what} is not finite; the network's weights or outputs are too large")
    return values


def refuse_unless_fits(what: str, needed: int, device: torch.device) -> None:
    """Raises TooLarge if the device has fewer bytes left than are needed."""
    available = available_bytes(device)
    if needed > available:
        raise TooLarge(
            f"{what} needs {needed / 1e9:.1f} GB of memory; {available / 1e9:.1f} GB are available"
        )


def available_bytes(device: torch.device) -> int:
    """What can still be taken of the device's memory, or of the machine's."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    facts = Path("/proc/meminfo")
    if not facts.exists():  # not Linux: all there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines = dict(line.split(":", 1) for line in facts.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def like(weights: Sequence[Tensor], vectors: Tensor) -> list[Tensor]:
    """Cut vectors [..., d] into tensors [..., *shape] of the weights' shapes."""
    parts = torch.split(vectors, [weight.numel() for weight in weights], -1)
    return [
        part.reshape(*part.shape[:-1], *weight.shape) for part, weight in zip(parts, weights, strict=True)
    ]
