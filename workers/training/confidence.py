"""A cheap proxy of memorisation: how confident a network was of each row while it learned it.

The probability of a row's own class, averaged over the epochs (as in Zhao & Triantafillou 2024, arXiv
2410.16516): rows that fit in with others are known early, rows that have to be learned by heart late. It is
taken from the training's own forward passes, so it costs no pass; but those are in training mode, on
augmented images and at weights that move from batch to batch, so it is no measurement of the trained network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models_store.checkpoints import pack, unpack
from models_store.rows import RowSet
from workers.training.gradients import Forward, Loss


class Confidence:
    """Sums over passes by a row's place, on the device; nothing is brought to the host before `packed`."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.sums = torch.zeros(count, device=device)  # float32 [count]; a checkpoint has to hold it

    def heard(self, loss: Loss, places: Tensor, labels: Tensor) -> Loss:
        """`loss`, of whose first pass the logits are noted: of the rows at `places` [B], in that order."""

        def listening(forward: Forward) -> Tensor:
            return loss(_Heard(forward, self, places, labels))

        return listening

    @torch.no_grad()
    def add(self, logits: Tensor, places: Tensor, labels: Tensor) -> None:
        """Note one pass of a batch: logits [B, K], labels [B] in [0, K), distinct places [B]."""
        own = logits.softmax(1).gather(1, labels[:, None]).squeeze(1)
        self.sums.index_add_(0, places.to(self.sums.device, non_blocking=True), own.to(self.sums.dtype))

    def packed(self, rows: RowSet, epochs: int) -> bytes:
        """The means over so many epochs, for `scores`: float32 [n] in the order of the rows' ordinals."""
        return pack({"confidence": self.sums / epochs}, {"rows": rows.digest, "epochs": epochs})


def scores(content: bytes, rows: RowSet) -> NDArray[np.float64]:
    """What `Confidence.packed` wrote, turned round so that it grows with memorisation: 1 - mean confidence.

    Args:
        content: The blob.
        rows: The rows that the network was trained on.

    Returns:
        float64 [n] in [0, 1], in the order of the rows' ordinals.

    Raises:
        ValueError: The blob tells of other rows.
    """
    tensors, facts = unpack(content)
    if facts.get("rows") != rows.digest:
        raise ValueError("these confidences are of other rows")
    return 1 - tensors["confidence"].double().numpy()


@dataclass(frozen=True)
class _Heard:
    """A forward pass that tells what came out of it."""

    forward: Forward
    confidence: Confidence
    places: Tensor
    labels: Tensor

    @property
    def first(self) -> bool:
        return self.forward.first

    def __call__(self, inputs: Tensor, *, moves_statistics: bool = True) -> Tensor:
        logits = self.forward(inputs, moves_statistics=moves_statistics)
        if self.first:
            self.confidence.add(logits, self.places, self.labels)
        return logits
