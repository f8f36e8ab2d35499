"""What is on record of the training that a network comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from workers.data.batches import RowSource

State = tuple[Mapping[str, Tensor], Mapping[str, Any]]  # a network's tensors, and the facts beside them


@dataclass(frozen=True, kw_only=True)
class Past:
    """The training that a network's weights come from.

    Attributes:
        count: How many rows it was trained on.
        forgotten: Where the rows to forget stood among them: int64 [len(F)].
        rows: All of them, if they may still be read.
        seed: The training's.
        device_type: Of what kind of device the order of the rows was drawn on.
        snapshots: Open the states that the epochs began with, one each; none, if they were not kept.
    """

    count: int
    forgotten: Tensor
    rows: Callable[[], RowSource] | None
    seed: int
    device_type: str
    snapshots: Sequence[Callable[[], State]]
