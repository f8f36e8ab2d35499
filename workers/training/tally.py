"""Loss and accuracy of the batches as they go by, and other figures of the steps, added up on the device."""

from __future__ import annotations

import torch
from torch import Tensor


class Tally:
    """Sums by name; nothing is brought to the host before `read`."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._rows: dict[str, int] = {}
        self._notes: dict[str, list[Tensor]] = {}

    def add(self, name: str, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Count a batch: logits [B, K], labels [B], and its mean loss."""
        count = len(labels)
        hits = (logits.argmax(1) == labels).sum()
        sums = torch.stack([loss.detach().double() * count, hits.double()])
        self._sums[name] = self._sums[name] + sums if name in self._sums else sums
        self._rows[name] = self._rows.get(name, 0) + count

    def note(self, name: str, value: Tensor) -> None:
        """Keep a figure of a step: one number, on the device."""
        self._notes.setdefault(name, []).append(value.detach())

    def read(self) -> dict[str, float]:
        """What there was since the last reading.

        The mean loss and accuracy by name, as `<name>_loss` and `<name>_accuracy`, and the means of what was
        noted.
        """
        figures: dict[str, float] = {}
        for name, sums in self._sums.items():
            loss, hits = sums.tolist()
            figures |= {f"{name}_loss": loss / self._rows[name], f"{name}_accuracy": hits / self._rows[name]}
        figures |= {name: float(torch.stack(values).double().mean()) for name, values in self._notes.items()}
        self._sums.clear()
        self._notes.clear()
        self._rows.clear()
        return figures
