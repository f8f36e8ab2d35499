"""What every reader offers: rows to register, one by one, and images to train on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast, get_args

import numpy as np
from numpy.typing import NDArray

from app.jobs.params import Split
from models_store.rows import RowSet

NO_LABEL = -1  # what a missing, fractional or textual label is read as
LARGEST_SIDE = 1024  # pixels
SPLITS = frozenset[str](get_args(Split))

Images = NDArray[np.uint8]


class DataFault(Exception):
    """A data set cannot be read; the message names rows by number, never by sample ID."""


class DataMissing(DataFault):
    """There is no readable data set at the location."""


class BadFormat(DataFault):
    """The file is not what its reader expects."""


class UnreadableImage(DataFault):
    """The bytes of one row are not an image that this reader decodes."""


@dataclass(frozen=True)
class Record:
    """One row as it stands in the file: not yet judged, so a split may be unknown and an ID empty."""

    ordinal: int
    sample_id: str
    label: int
    split: str | None
    subject: str | None
    image: bytes


@dataclass(frozen=True)
class Row:
    """One row as it is registered: everything but the image, which its hash stands for."""

    ordinal: int
    sample_id: str
    label: int
    split: Split | None
    subject: str | None
    content_hash: bytes


class Reader(Protocol):
    """A data set at a place. Every call reads afresh and holds a few hundred images at most."""

    @property
    def count(self) -> int:
        """How many rows there are."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the order of their labels, or nothing if the data set has none."""

    def records(self, wanted: RowSet | None = None) -> Iterator[Record]:
        """The rows in ascending order: all, or those whose ordinals are wanted."""

    def shape(self, image: bytes) -> tuple[int, int, int]:
        """Height, width and channels of a record's image, without decoding it. Raises UnreadableImage."""

    def decode(self, image: bytes) -> Images:
        """A record's image, uint8 [H, W, C]. Raises UnreadableImage."""

    def content_hash(self, image: bytes) -> bytes:
        """SHA-256 of the stored image; where the stored bytes do not say their shape, of shape and bytes."""


def rows(reader: Reader) -> Iterator[Row]:
    """Every row of a data set that `scan` found no fault with, in the order of the ordinals."""
    for record in reader.records():
        yield Row(
            record.ordinal,
            record.sample_id,
            record.label,
            cast("Split | None", record.split),
            record.subject,
            reader.content_hash(record.image),
        )


def load(
    reader: Reader, wanted: RowSet, image_shape: tuple[int, int, int]
) -> tuple[Images, NDArray[np.int64]]:
    """Decode the wanted rows, in the order of their ordinals, into one array.

    Args:
        reader: the data set.
        wanted: which rows; there may be none.
        image_shape: height, width and channels that every image was registered with.

    Returns:
        Images uint8 [n, H, W, C] and labels int64 [n].

    Raises:
        DataFault: a row is missing, does not decode, or has another shape.
    """
    labels = np.empty(len(wanted), dtype=np.int64)
    images = np.empty((len(wanted), *image_shape), dtype=np.uint8)
    found = 0
    for record in reader.records(wanted):
        image = _decoded(reader, record)
        if image.shape != image_shape:
            raise BadFormat(f"row {record.ordinal} has shape {image.shape}, not {image_shape}")
        images[found] = image
        labels[found] = record.label
        found += 1
    if found != len(wanted):
        raise DataMissing(f"{len(wanted) - found} of {len(wanted)} wanted rows are not in the data set")
    return images, labels


def as_label(value: object) -> int:
    """A label as an integer; NO_LABEL for anything that is not one (a boolean is not)."""
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else NO_LABEL


def as_text(value: object) -> str:
    """An identifier as text: integers are written out, anything but text and integers is empty."""
    return str(value) if isinstance(value, str | int | np.integer) and not isinstance(value, bool) else ""


def pixels_hash(image: bytes, shape: tuple[int, ...]) -> bytes:
    """SHA-256 of raw pixels and of their shape, which the pixels alone do not tell."""
    header = "x".join(str(side) for side in shape).encode()
    return hashlib.sha256(header + b"\0" + image).digest()


def _decoded(reader: Reader, record: Record) -> Images:
    try:
        return reader.decode(record.image)
    except UnreadableImage as fault:
        raise UnreadableImage(f"row {record.ordinal}: {fault}") from fault
