"""Images and labels in one NumPy .npz file, read as a stream and never unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from app.jobs.params import Npz
from models_store.rows import RowSet
from workers.data.reader import (
    LARGEST_SIDE,
    BadFormat,
    DataMissing,
    Images,
    Record,
    as_label,
    as_text,
    pixels_hash,
)

_LARGEST_COLUMN = 2**31  # bytes of labels, IDs, subjects or splits that are held at once
_TORN = (EOFError, OSError, zipfile.BadZipFile, zlib.error)
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class _Columns(NamedTuple):
    labels: NDArray[Any]
    ids: NDArray[Any] | None
    subjects: NDArray[Any] | None
    splits: NDArray[Any] | None


class NpzReader:
    """Arrays `x`, `y` and optionally `ids`, `subjects`, `split` of one file; see `app.jobs.params.Npz`."""

    def __init__(self, location: str, options: Npz) -> None:
        self._path = Path(location)
        self.class_names = options.class_names
        if not self._path.is_file():
            raise DataMissing("there is no file at the location")
        with self._opened() as archive, _member(archive, "x") as stream:
            self._images = _image_header(_header(stream, "x"))
        height, width, *channels = self._images.shape[1:]
        self._shape = (height, width, channels[0] if channels else 1)

    @property
    def count(self) -> int:
        return self._images.shape[0]

    def records(self, wanted: RowSet | None = None) -> Iterator[Record]:
        columns = self._columns
        for ordinal, image in enumerate(self._pixels()):
            if wanted is None or ordinal in wanted:
                yield _record(ordinal, image, columns)

    def shape(self, image: bytes) -> tuple[int, int, int]:  # noqa: ARG002 - every image has the same
        return self._shape

    def decode(self, image: bytes) -> Images:
        return np.frombuffer(image, dtype=np.uint8).reshape(self._shape)

    def content_hash(self, image: bytes) -> bytes:
        return pixels_hash(image, self._shape)

    def _pixels(self) -> Iterator[bytes]:
        """Every image's pixels in turn, read as a stream."""
        size = math.prod(self._shape)
        with self._opened() as archive, _member(archive, "x") as stream:
            _header(stream, "x")
            for _ in range(self.count):
                yield _exactly(stream, size)

    @cached_property
    def _columns(self) -> _Columns:
        with self._opened() as archive:
            labels = self._column(archive, "y")
            if labels is None:
                raise BadFormat("the file has no array 'y'")
            ids, subjects, splits = (self._column(archive, name) for name in ("ids", "subjects", "split"))
        return _Columns(labels, ids, subjects, splits)

    def _column(self, archive: zipfile.ZipFile, name: str) -> NDArray[Any] | None:
        """One small array, its size checked before it is allocated; None if the file has no such array."""
        if f"{name}.npy" not in archive.namelist():
            return None
        with _member(archive, name) as stream:
            header = _header(stream, name)
        if header.shape != (self.count,):
            raise BadFormat(f"array {name!r} has shape {header.shape}, not ({self.count},) as 'x' demands")
        if header.dtype.itemsize * self.count > _LARGEST_COLUMN:
            raise BadFormat(f"array {name!r} is larger than {_LARGEST_COLUMN} bytes")
        with _member(archive, name) as stream:
            try:
                return np.asarray(npy.read_array(stream, allow_pickle=False))
            except (ValueError, *_TORN):
                raise BadFormat(f"array {name!r} ends early or is damaged") from None

    def _opened(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self._path)
        except (zipfile.BadZipFile, OSError):
            raise BadFormat("the file is not an .npz archive") from None


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        return archive.open(f"{name}.npy")
    except (KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile):
        raise BadFormat(f"the file has no readable array {name!r}") from None


def _exactly(stream: IO[bytes], size: int) -> bytes:
    try:
        content = stream.read(size)
    except _TORN:
        content = b""
    if len(content) != size:
        raise BadFormat("array 'x' ends early or is damaged")
    return content


def _header(stream: IO[bytes], name: str) -> _Header:
    """Shape and type of the array that `stream` begins, leaving the stream at its first value."""
    try:
        version = npy.read_magic(stream)
        shape, fortran_order, dtype = _HEADERS[version](stream)
    except (ValueError, KeyError, *_TORN):
        raise BadFormat(f"array {name!r} has no readable header") from None
    if dtype.hasobject or fortran_order:
        raise BadFormat(f"array {name!r} must hold plain values in C order")
    return _Header(shape, dtype)


def _image_header(header: _Header) -> _Header:
    sides = header.shape[1:3]
    channels = header.shape[3:] or (1,)
    if header.dtype != np.uint8 or len(header.shape) not in {3, 4}:
        raise BadFormat("array 'x' must be uint8 of shape [N, H, W] or [N, H, W, C]")
    if not all(1 <= side <= LARGEST_SIDE for side in sides) or channels[0] not in {1, 3}:
        raise BadFormat(f"images must be at most {LARGEST_SIDE} pixels a side, of 1 or 3 channels")
    return header


def _record(ordinal: int, image: bytes, columns: _Columns) -> Record:
    labels, ids, subjects, splits = columns
    return Record(
        ordinal,
        str(ordinal) if ids is None else as_text(ids[ordinal]),
        as_label(labels[ordinal]),
        None if splits is None else as_text(splits[ordinal]) or None,
        None if subjects is None else as_text(subjects[ordinal]) or None,
        image,
    )
