"""What the audit knows of a network: its logits and features on the rows of a set, and those rows' labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
SetName = Literal[
    "retain",
    "forget",
    "holdout",
    "test",
    "triggered",  # test rows with a trigger
    "forget_noisy",  # with noise on the images
    "holdout_noisy",
    "forget_int8",  # under weights that are rounded to eight bits, or to four
    "holdout_int8",
    "forget_int4",
    "holdout_int4",
]
Variant = Literal["noisy", "int8", "int4"]
HOLDOUTS: Final[tuple[SetName, ...]] = ("holdout", "holdout_noisy", "holdout_int8", "holdout_int4")
_VARIANTS: Final[Mapping[Variant, tuple[SetName, SetName]]] = {
    "noisy": ("forget_noisy", "holdout_noisy"),
    "int8": ("forget_int8", "holdout_int8"),
    "int4": ("forget_int4", "holdout_int4"),
}


@dataclass(frozen=True)
class Outputs:
    """One network on one set of rows.

    Attributes:
        logits: float64 [n, C], C at least 2, from a float32 forward pass in evaluation mode. A row of a
            diverged network may hold inf or NaN; it then counts as misclassified and stops the attacks.
        labels: int64 [n], each in [0, C).
        features: float64 [n, d], what the last layer is given; None where they are not known.
    """

    logits: FloatArray
    labels: IntArray
    features: FloatArray | None = None

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
        if self.features is not None and (self.features.ndim != 2 or len(self.features) != len(self)):
            raise ValueError(f"features must be float64 [{len(self)}, d], not {self.features.shape}")

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
        features = None if self.features is None else self.features[rows]
        return Outputs(self.logits[rows], self.labels[rows], features)


Sets = Mapping[SetName, Outputs]


def variant(sets: Sets, name: Variant) -> Sets | None:
    """F and H under that condition, as "forget" and "holdout"; None where they were not measured."""
    forget, holdout = _VARIANTS[name]
    if forget not in sets or holdout not in sets:
        return None
    return {"forget": sets[forget], "holdout": sets[holdout]}


@dataclass(frozen=True)
class Networks:
    """The networks of an audit, all measured on the same rows.

    Attributes:
        original: outputs before unlearning on "retain" (or a sample of it), "forget", "holdout" and "test",
            and on those of the other sets that were measured.
        unlearned: outputs after unlearning, on the same rows in the same order.
        references: those of networks trained on exactly R, if there are any.
    """

    original: Sets
    unlearned: Sets
    references: tuple[Sets, ...] = ()

    @property
    def named(self) -> dict[str, Sets]:
        """By the names that figures have: "original", "unlearned" and, if there is one, "reference"."""
        first = {"reference": self.references[0]} if self.references else {}
        return {"original": self.original, "unlearned": self.unlearned, **first}

    def each(self, change: Callable[[Sets], Sets]) -> Networks:
        """The same networks after a change of what was measured."""
        return Networks(
            change(self.original), change(self.unlearned), tuple(change(sets) for sets in self.references)
        )
