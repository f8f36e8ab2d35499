"""Scikit-learn's handwritten digits: real images, invented subjects, and contributions that were wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from app.jobs.params import SklearnDigits
from models_store.rows import RowSet
from workers.data.reader import BadFormat, Chunk, Images, Shape, pixels_hash, wanted_between

_CONTRIBUTORS = 60
_ROWS_OF_A_MISLABELLER = 27  # seven of them train on 63 rows: 5% of the default training rows
_SHARED_OUT = ("train", "holdout", "validation")  # their rows, in turn: what was kept out tells how to judge
_EVERY = 5  # of the rows in the order of their labels, every fifth is a test row: 360 of 1,797


class _Table(NamedTuple):
    images: Images  # [1797, 8, 8, 1]
    labels: NDArray[np.int64]
    splits: list[str | None]
    subjects: list[str | None]


class DigitsReader:
    """The 1,797 digits as a data set of people; see `app.jobs.params.SklearnDigits` for what is invented."""

    class_names = tuple(str(digit) for digit in range(10))

    def __init__(self, location: str, options: SklearnDigits) -> None:
        if location:
            raise BadFormat("the digits come with scikit-learn and have no location")
        self._options = options

    @cached_property
    def _table(self) -> _Table:
        return _deal(self._options)

    @property
    def count(self) -> int:
        return len(self._table.labels)

    def chunks(self, wanted: RowSet | None = None) -> Iterator[Chunk]:
        table = self._table
        ordinals = wanted_between(wanted, 0, self.count)
        if len(ordinals):
            places = ordinals.tolist()
            yield Chunk(
                ordinals,
                [f"digits-{ordinal:04d}" for ordinal in places],
                table.labels[ordinals],
                [table.splits[ordinal] for ordinal in places],
                [table.subjects[ordinal] for ordinal in places],
                [self.image(ordinal) for ordinal in places],
            )

    def image(self, ordinal: int) -> bytes:
        pixels: bytes = self._table.images[ordinal].tobytes()
        return pixels

    def shape(self, image: bytes) -> Shape:  # noqa: ARG002 - every image has the same
        return (8, 8, 1)

    def decode(self, image: bytes) -> Images:
        return np.frombuffer(image, dtype=np.uint8).reshape(8, 8, 1)

    def content_hash(self, image: bytes) -> bytes:
        return pixels_hash(image, (8, 8, 1))


def _deal(options: SklearnDigits) -> _Table:
    """Choose the test rows, deal the others out to contributors, and falsify the first ones' labels."""
    pixels, labels = load_digits(return_X_y=True)
    labels = labels.astype(np.int64)
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    splits: list[str | None] = [None] * len(labels)
    subjects: list[str | None] = [None] * len(labels)

    test = np.argsort(labels, kind="stable")[::_EVERY]
    for ordinal in test:
        splits[ordinal] = "test"

    generator = np.random.default_rng(options.seed)
    others = generator.permutation(np.setdiff1d(np.arange(len(labels)), test))
    for contributor, ordinals in enumerate(_contributions(others, options.mislabelled_subjects)):
        for ordinal in ordinals:
            subjects[ordinal] = f"contributor-{contributor:02d}"

    wrong = others[: options.mislabelled_subjects * _ROWS_OF_A_MISLABELLER]
    labels[wrong] = (labels[wrong] + generator.integers(1, 10, len(wrong))) % 10
    for place, ordinal in enumerate(wrong[np.argsort(labels[wrong], kind="stable")]):
        splits[ordinal] = _SHARED_OUT[place % len(_SHARED_OUT)]
    return _Table(images, labels, splits, subjects)


def _contributions(others: NDArray[np.int64], mislabelled: int) -> list[NDArray[np.int64]]:
    """The rows of each contributor: the mislabellers' fixed share first, the rest in nearly equal parts."""
    cut = mislabelled * _ROWS_OF_A_MISLABELLER
    wrong = np.split(others[:cut], mislabelled) if mislabelled else []
    return [*wrong, *np.array_split(others[cut:], _CONTRIBUTORS - mislabelled)]
