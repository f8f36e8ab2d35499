"""What every reader offers: rows to register, chunk by chunk, and images to train on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from app.jobs.params import Split
from models_store.rows import RowSet

NO_LABEL = -1  # what a missing, fractional or textual label is read as
LARGEST_SIDE = 1024  # pixels
SPLITS = frozenset[str](get_args(Split))
CHUNK_ROWS = 4096
CHUNK_BYTES = 32 * 1024 * 1024  # of images, beyond which a chunk takes no further row

Images = NDArray[np.uint8]
Shape = tuple[int, int, int]  # height, width, channels


class DataFault(Exception):
    """A data set cannot be read; the message names rows by number, never by sample ID."""


class DataMissing(DataFault):
    """There is no readable data set at the location."""


class BadFormat(DataFault):
    """The file is not what its reader expects."""


class UnreadableImage(DataFault):
    """The bytes of one row are not an image that this reader decodes."""


class DataChanged(DataFault):
    """Rows hold other images than when they were registered."""


@dataclass(frozen=True)
class Chunk:
    """Some rows as they stand in the file, column by column: not yet judged, so an ID may be empty.

    Attributes:
        ordinals: int64 [n], ascending; the rows between two of them were not wanted.
        sample_ids: Empty where the row has none.
        labels: int64 [n], NO_LABEL where missing or not an integer.
        splits: Any text, None where a row has none; None: no row has one.
        subjects: Likewise.
        images: As they are stored: encoded, or raw pixels.
    """

    ordinals: NDArray[np.int64]
    sample_ids: Sequence[str]
    labels: NDArray[np.int64]
    splits: Sequence[str | None] | None
    subjects: Sequence[str | None] | None
    images: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.ordinals)


class Reader(Protocol):
    """A data set at a place. Every call reads afresh and holds one chunk at a time."""

    @property
    def count(self) -> int:
        """How many rows there are."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the order of their labels, or nothing if the data set has none."""

    def chunks(self, wanted: RowSet | None = None) -> Iterator[Chunk]:
        """The rows in ascending order: all, or those whose ordinals are wanted.

        A chunk has at least one row, and at most CHUNK_ROWS rows or about CHUNK_BYTES of images. What is
        wrong with single rows is for the caller to judge. Raises DataFault if the data cannot be read on.
        """

    def shape(self, image: bytes) -> Shape:
        """Height, width and channels of a row's image, without decoding it. Raises UnreadableImage."""

    def decode(self, image: bytes) -> Images:
        """A row's image, uint8 [H, W, C]. Raises UnreadableImage."""

    def content_hash(self, image: bytes) -> bytes:
        """SHA-256 of the stored image; where the stored bytes do not say their shape, of shape and bytes."""


@runtime_checkable
class RandomAccess(Protocol):
    """A reader that fetches the image of any one row at little cost, such as one file a row."""

    def image(self, ordinal: int) -> bytes:
        """The row's image as it is stored. Raises DataFault; the row exists. Called by several threads."""

    def labels(self, wanted: RowSet) -> NDArray[np.int64]:
        """The labels of those of the wanted rows that exist, ascending by ordinal, without their images."""


def wanted_between(wanted: RowSet | None, start: int, end: int) -> NDArray[np.int64]:
    """The ordinals in [start, end) that are wanted (None: all), ascending."""
    if wanted is None:
        return np.arange(start, end, dtype=np.int64)
    first = start >> 3
    piece = np.frombuffer(wanted.bits, dtype=np.uint8)[first : (end + 7) >> 3]
    ordinals = np.flatnonzero(np.unpackbits(piece, bitorder="little")) + 8 * first
    return ordinals[np.searchsorted(ordinals, start) : np.searchsorted(ordinals, end)]


def rows_a_chunk(bytes_a_row: int) -> int:
    """How many rows of this size a chunk may have."""
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, bytes_a_row)))


def as_label(value: object) -> int:
    """A label as an integer; NO_LABEL for anything that is not one (a boolean is not)."""
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else NO_LABEL


def as_text(value: object) -> str:
    """An identifier as text: integers are written out, anything but text and integers is empty."""
    return str(value) if isinstance(value, str | int | np.integer) and not isinstance(value, bool) else ""


def pixels_hash(image: bytes, shape: tuple[int, ...]) -> bytes:
    """SHA-256 of raw pixels and of their shape, which the pixels alone do not tell."""
    return hashlib.sha256(_written(shape) + image).digest()


@lru_cache
def _written(shape: tuple[int, ...]) -> bytes:
    return "x".join(str(side) for side in shape).encode() + b"\0"
