"""What the audit knows of a network: its logits on the rows of a set, and those rows' labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
SetName = Literal["retain", "forget", "holdout", "test", "triggered"]  # the last: test rows with a trigger


@dataclass(frozen=True)
class Outputs:
    """One network on one set of rows.

    Attributes:
        logits: float64 [n, C], C at least 2, from a float32 forward pass in evaluation mode. A row of a
            diverged network may hold inf or NaN; it then counts as misclassified and stops the attacks.
        labels: int64 [n], each in [0, C).
    """

    logits: FloatArray
    labels: IntArray

    def __post_init__(self) -> None:
        """Raises ValueError where shapes, types or labels do not fit each other."""
        if self.logits.ndim != 2 or self.logits.shape[1] < 2 or self.logits.dtype != np.float64:
            raise ValueError(
                f"logits must be float64 [n, C >= 2], not {self.logits.dtype} {self.logits.shape}"
            )
        if self.labels.shape != self.logits.shape[:1] or self.labels.dtype != np.int64:
            raise ValueError(f"labels must be int64 [{len(self.logits)}], not {self.labels.dtype}")
        if len(self) and not (self.labels.min() >= 0 and self.labels.max() < self.logits.shape[1]):
            raise ValueError("a label is outside the network's classes")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def finite(self) -> BoolArray:
        """Which rows have only finite logits: bool [n]."""
        finite: BoolArray = np.logical_and.reduce(np.isfinite(self.logits), axis=1)
        return finite

    @property
    def correct(self) -> BoolArray:
        """Which rows are classified as labelled: bool [n]."""
        return self.called(self.labels)

    def called(self, labels: IntArray | int) -> BoolArray:
        """Which rows are classified as these labels, or all as this one: bool [n]."""
        predicted: IntArray = self.logits.argmax(axis=1)
        return np.equal(predicted, labels) & self.finite

    def take(self, rows: IntArray) -> Outputs:
        """The same network on these rows of the set."""
        return Outputs(self.logits[rows], self.labels[rows])


Sets = Mapping[SetName, Outputs]
