"""Rows as uint8, where networks want them, and shuffled, augmented batches of them.

The batch of a step is a function of (seed, step) alone. So a resumed job needs no generator's state to go on
with the very same batches, every pass is shuffled and augmented anew, and nothing is kept of earlier passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.data.augment import Augmentation, augment
from workers.data.reader import Images
from workers.data.seeds import generator

Change = Callable[[Tensor], Tensor]  # of images [B, C, H, W]


class RowSource(Protocol):
    """Rows to learn from or to be measured on, wherever they are kept; places count from 0 among them."""

    @property
    def labels(self) -> Tensor:
        """int64 [n], on `index_device`."""

    @property
    def device(self) -> torch.device:
        """Where the rows that are taken come to lie."""

    @property
    def index_device(self) -> torch.device:
        """Where places are wanted."""

    def __len__(self) -> int: ...

    def take(self, places: Tensor | slice, change: Change | None = None) -> Rows:
        """The rows at these places, their images changed before anything is put onto them. Raises DataFault.

        What is taken at a tensor of places is the caller's own; at a slice it may be the rows' own memory.
        """

    def expect(self, places: Tensor) -> None:
        """These places will be taken next: what takes time may begin now."""

    def in_order(self, batch_size: int, places: Tensor | None = None) -> Iterator[Rows]:
        """All rows once, or those at `places`, as they stand. Raises DataFault."""


@dataclass(frozen=True)
class Rows:
    """Rows in memory, on one device: images uint8 [n, C, H, W] (channels last) and labels int64 [n]."""

    images: Tensor
    labels: Tensor

    @classmethod
    def of(cls, images: Images, labels: NDArray[np.int64], device: torch.device | str = "cpu") -> Rows:
        """Take over what a reader loaded: images uint8 [n, H, W, C], labels int64 [n]."""
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        return cls(
            pixels.to(device).contiguous(memory_format=torch.channels_last),
            torch.from_numpy(labels).to(device),
        )

    @property
    def device(self) -> torch.device:
        """Where both are."""
        return self.labels.device

    @property
    def index_device(self) -> torch.device:
        """The same."""
        return self.labels.device

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Tensor | slice, change: Change | None = None) -> Rows:
        """The rows at these places."""
        images = self.images[places]
        return Rows(images if change is None else change(images), self.labels[places])

    def expect(self, places: Tensor) -> None:
        """Nothing has to be prepared."""

    def in_order(self, batch_size: int, places: Tensor | None = None) -> Iterator[Rows]:
        """All rows once, or those at `places`, as they stand."""
        for start in range(0, len(self) if places is None else len(places), batch_size):
            part = slice(start, start + batch_size)
            yield self.take(part if places is None else places[part])


class Order:
    """Endless passes over so many rows, each in a new order; every row comes once a pass.

    A pass is cut into ceil(n / batch_size) batches of nearly equal size, so none is too small for batch
    normalisation.
    """

    def __init__(
        self, count: int, *, batch_size: int, seed: int, device: torch.device, index_device: torch.device
    ) -> None:
        """`device`: where it is drawn, which decides the draw; `index_device`: where places are wanted."""
        if not count:
            raise ValueError("there are no rows to draw batches from")
        self.steps_per_pass = -(-count // batch_size)
        self._count = count
        self._seed = seed
        self._device = device
        self._index_device = index_device
        self._pass: tuple[int, Tensor] = (-1, torch.empty(0))

    def places(self, step: int) -> Tensor:
        """Which rows the batch of a step holds, in its order: int64 [B]."""
        number, place = divmod(step, self.steps_per_pass)
        start = place * self._count // self.steps_per_pass
        end = (place + 1) * self._count // self.steps_per_pass
        return self._order_of_pass(number)[start:end]

    def _order_of_pass(self, number: int) -> Tensor:
        if self._pass[0] != number:
            draw = generator(self._seed, "pass", number, device=self._device)
            order = torch.randperm(self._count, generator=draw, device=self._device)
            self._pass = (number, order.to(self._index_device))
        return self._pass[1]


class Batches:
    """Batches of a set of rows in an endless `Order`, augmented anew every pass."""

    def __init__(
        self, rows: RowSource, *, batch_size: int, augmentation: Augmentation = "none", seed: int
    ) -> None:
        # Drawn where the batches lie, whatever keeps the rows: the order is the same for all sources.
        self._order = Order(
            len(rows),
            batch_size=batch_size,
            seed=seed,
            device=rows.device,
            index_device=rows.index_device,
        )
        self._rows = rows
        self._augmentation = augmentation
        self._seed = seed

    @property
    def steps_per_pass(self) -> int:
        """How many batches it takes for every row to come once."""
        return self._order.steps_per_pass

    def at(self, step: int) -> Rows:
        """The batch of step `step`, counted from 0. Raises DataFault."""
        batch = self._rows.take(self.places(step), self._change(step))
        self._rows.expect(self.places(step + 1))
        return batch

    def _change(self, step: int) -> Change | None:
        if self._augmentation == "none":
            return None
        draw = generator(self._seed, "augment", step, device=self._rows.device)
        return partial(augment, kind=self._augmentation, generator=draw)

    def places(self, step: int) -> Tensor:
        """Which rows the batch of a step holds, in its order: int64 [B], on the rows' `index_device`."""
        return self._order.places(step)
