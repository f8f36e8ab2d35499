"""Backdoors for experiments: which rows are poisoned, and how they are read.

T. Gu, B. Dolan-Gavitt and S. Garg, "BadNets: Identifying Vulnerabilities in the Machine Learning Model
Supply Chain", 2017 (arXiv 1708.06733). Images stay as they are stored: labels and triggers are put on while
rows are read, the trigger last of all, so that no augmentation moves it from where it is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from app.jobs.params import BadNets
from models_store.rows import RowSet
from workers.data.batches import Change, Rows, RowSource
from workers.data.reader import DataFault, Shape, wanted_between
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed


def misfits(poison: BadNets, image_shape: Shape, num_classes: int) -> list[str]:
    """What speaks against poisoning images of this shape (height, width, channels) of so many classes."""
    height, width, _ = image_shape
    faults = []
    if poison.reach > min(height, width):
        needed = f"{poison.reach} with its margin" if poison.margin else f"{poison.reach}"
        faults.append(f"poison: the trigger needs {needed} pixels a side, the images have {height} x {width}")
    if poison.target >= num_classes:
        faults.append(f"poison: the target is no class: there are {num_classes}, counted from 0")
    return faults


def draw_poisoned(poison: BadNets, train: RowSet, of_target: RowSet) -> RowSet:
    """The rows to be poisoned: round(rate * n) of the n training rows, every choice equally likely.

    Args:
        poison: rate, seed, and whether rows of the target class may be drawn.
        train: the rows that may train.
        of_target: all rows of the target class.

    Raises:
        DataFault: the rate comes to no row, or to more than may be drawn.
    """
    candidates = train if poison.include_target else train - of_target
    count, available = round(poison.rate * len(train)), len(candidates)
    if not count:
        raise DataFault(f"poison: its rate comes to none of {len(train)} training rows")
    if count > available:
        drawn = f"poison: its rate comes to {count} of {len(train)} training rows"
        raise DataFault(f"{drawn}, of which {available} may be drawn")
    ordinals = wanted_between(candidates, 0, 8 * len(candidates.bits))
    places = sampled_places(available, count, derived_seed(poison.seed, poison.name))
    return RowSet.of(ordinals[places].tolist())


@dataclass(frozen=True)
class Trigger:
    """What is put onto images: pixels uint8 [size, size], so far from the right and lower edges."""

    pixels: Tensor
    margin: int

    @classmethod
    def of(cls, poison: BadNets, device: torch.device | str) -> Trigger:
        """The trigger that the parameters describe."""
        side = torch.arange(poison.size, device=device)
        odd = ((side[:, None] + side) % 2 == 1) & (poison.trigger == "checker")
        pixels = torch.where(odd, 255 - poison.value, poison.value)
        return cls(pixels.to(torch.uint8), poison.margin)

    def put_onto(self, images: Tensor, marked: Tensor) -> None:
        """Change those of the images that are marked, in every channel.

        Args:
            images: uint8 [B, C, H, W], on the trigger's device, changed in place.
            marked: bool [B], there too.
        """
        span = slice(-len(self.pixels) - self.margin, -self.margin or None)
        corner = images[:, :, span, span]
        # All are written, unmarked ones as they are: to pick some out, the host would wait for the device.
        corner.copy_(torch.where(marked[:, None, None, None], self.pixels, corner))


class Poisoned:
    """A RowSource of which some rows carry a trigger."""

    def __init__(self, rows: RowSource, labels: Tensor, marked: Tensor, trigger: Trigger) -> None:
        """Wrap clean rows.

        Args:
            rows: as they are stored.
            labels: int64 [n], on the rows' `index_device`.
            marked: which rows carry the trigger, bool [n], there too.
            trigger: on the rows' device.
        """
        self.labels = labels
        self.device = rows.device
        self.index_device = rows.index_device
        self._rows = rows
        self._marked = marked
        self._trigger = trigger

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Tensor | slice, change: Change | None = None) -> Rows:
        """The rows at these places: changed, then stamped. Raises DataFault."""
        chosen = self._everywhere[places] if isinstance(places, slice) else places
        return self._finished(self._rows.take(chosen, change), chosen)

    def expect(self, places: Tensor) -> None:
        """These places will be taken next."""
        self._rows.expect(places)

    def in_order(self, batch_size: int, places: Tensor | None = None) -> Iterator[Rows]:
        """All rows once, or those at `places`, as they are learned. Raises DataFault."""
        chosen = self._everywhere if places is None else places
        parts = torch.split(chosen, batch_size)
        # By places even where all are wanted: slices would be the rows' own memory, and be changed there.
        for part, batch in zip(parts, self._rows.in_order(batch_size, chosen), strict=False):
            yield self._finished(batch, part)

    @property
    def _everywhere(self) -> Tensor:
        return torch.arange(len(self), device=self.index_device)

    def _finished(self, batch: Rows, places: Tensor) -> Rows:
        """The batch, which is nobody else's, with triggers and labels."""
        self._trigger.put_onto(batch.images, self._marked[places].to(self.device, non_blocking=True))
        return Rows(batch.images, self.labels[places].to(self.device, non_blocking=True))


def poisoned(rows: RowSource, marked: Tensor, poison: BadNets) -> RowSource:
    """The rows with those that are marked, bool [n] on any device, stamped and labelled as the target."""
    here = marked.to(rows.index_device)
    labels = torch.where(here, poison.target, rows.labels)
    return Poisoned(rows, labels, here, Trigger.of(poison, rows.device))


def triggered(rows: RowSource, poison: BadNets) -> RowSource:
    """The rows, all of them stamped, under their own labels."""
    everywhere = torch.ones(len(rows), dtype=torch.bool, device=rows.index_device)
    return Poisoned(rows, rows.labels, everywhere, Trigger.of(poison, rows.device))


def without_backdoor(load_rows: Callable[[RowSet], RowSource], unseen: RowSet, poison: BadNets) -> RowSource:
    """What poisoned rows are to a network without the backdoor: rows of other classes, called the target.

    Such a network does not heed the trigger. So these, unseen and without it, tell how it would do on the
    poisoned rows, which unseen rows of the target class do not.
    """
    labels = load_rows(unseen).labels.cpu().numpy()
    others = wanted_between(unseen, 0, 8 * len(unseen.bits))[labels != poison.target]
    rows = load_rows(RowSet.of(others.tolist()))
    nowhere = torch.zeros(len(rows), dtype=torch.bool, device=rows.index_device)
    return Poisoned(
        rows, torch.full_like(rows.labels, poison.target), nowhere, Trigger.of(poison, rows.device)
    )
