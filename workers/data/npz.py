"""Images and labels in one NumPy .npz file, read as a stream and never unpickled."""

from __future__ import annotations

import math
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from app.jobs.params import Npz
from models_store.rows import RowSet
from workers.data.place import LocalPlace, place
from workers.data.reader import (
    LARGEST_SIDE,
    NO_LABEL,
    BadFormat,
    Chunk,
    Images,
    Shape,
    pixels_hash,
    rows_a_chunk,
    wanted_between,
)

_COLUMNS = ("y", "ids", "subjects", "split")  # beside the images, "x"
_LARGEST_VALUE = 65_536  # bytes of one label, ID, subject or split
_TORN = (EOFError, OSError, zipfile.BadZipFile, zlib.error)
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_LOCAL_HEADER = 30  # bytes of a zip archive before a member's name; its last four tell what follows


class _Array(NamedTuple):
    """One array of the file: what its header says, and how many bytes the header takes."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    header_bytes: int

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])


class NpzReader:
    """Arrays `x`, `y` and optionally `ids`, `subjects`, `split` of one file; see `app.jobs.params.Npz`."""

    def __init__(self, location: str, options: Npz) -> None:
        self._place = place(location)
        self.class_names = options.class_names
        with self._opened() as archive:
            self._images = _checked_images(_described(archive, "x"))
            names = [name for name in _COLUMNS if f"{name}.npy" in archive.namelist()]
            self._columns = [_checked_column(_described(archive, name), self.count) for name in names]
        if "y" not in names:
            raise BadFormat("the file has no array 'y'")
        height, width, *channels = self._images.shape[1:]
        self._shape = (height, width, channels[0] if channels else 1)

    @property
    def count(self) -> int:
        return self._images.shape[0]

    def chunks(self, wanted: RowSet | None = None) -> Iterator[Chunk]:
        end = self.count if wanted is None else min(self.count, 8 * len(wanted.bits))
        arrays = [self._images, *self._columns]
        step = rows_a_chunk(sum(array.row_bytes for array in arrays))
        with self._opened() as archive, ExitStack() as stack:
            streams = [stack.enter_context(_Stream(archive, array)) for array in arrays]
            for start in range(0, end, step):
                rows = min(step, end - start)
                ordinals = wanted_between(wanted, start, start + rows)
                if len(ordinals):
                    values = {stream.name: stream.read(rows) for stream in streams}
                    yield self._chunk(values, ordinals, ordinals - start)
                else:
                    for stream in streams:
                        stream.skip(rows)
            if wanted is None:
                for stream in streams:
                    stream.finish()

    def shape(self, image: bytes) -> Shape:  # noqa: ARG002 - every image has the same
        return self._shape

    def decode(self, image: bytes) -> Images:
        return np.frombuffer(image, dtype=np.uint8).reshape(self._shape)

    def content_hash(self, image: bytes) -> bytes:
        return pixels_hash(image, self._shape)

    def _chunk(
        self, values: dict[str, bytes], ordinals: NDArray[np.int64], places: NDArray[np.int64]
    ) -> Chunk:
        kinds = {array.name: array.dtype for array in self._columns}
        chosen = {name: np.frombuffer(values[name], kind)[places] for name, kind in kinds.items()}
        size = self._images.row_bytes
        return Chunk(
            ordinals,
            _texts(chosen["ids"]) if "ids" in chosen else [str(ordinal) for ordinal in ordinals.tolist()],
            _labels(chosen["y"]),
            _optional_texts(chosen.get("split")),
            _optional_texts(chosen.get("subjects")),
            [values["x"][size * place : size * (place + 1)] for place in places.tolist()],
        )

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        with self._place.open() as file:
            try:
                archive = zipfile.ZipFile(file)
            except (zipfile.BadZipFile, OSError):
                raise BadFormat("the file is not an .npz archive") from None
            with archive:
                yield archive

    def has_stored_images(self) -> bool:
        """Whether the images lie in the file as they are, not compressed."""
        with self._opened() as archive:
            return archive.getinfo("x.npy").compress_type == zipfile.ZIP_STORED


class StoredNpzReader(NpzReader):
    """A file whose images are not compressed: each lies at a place of its own that can be computed."""

    def __init__(self, location: str, options: Npz) -> None:
        super().__init__(location, options)
        with self._opened() as archive:
            start = archive.getinfo("x.npy").header_offset
        header = self._bytes(start, _LOCAL_HEADER)
        name, extra = (int.from_bytes(header[place : place + 2], "little") for place in (26, 28))
        self._first_image = start + _LOCAL_HEADER + name + extra + self._images.header_bytes

    def image(self, ordinal: int) -> bytes:
        """The row's pixels."""
        size = self._images.row_bytes
        return self._bytes(self._first_image + ordinal * size, size)

    def labels(self, wanted: RowSet) -> NDArray[np.int64]:
        """The labels of the wanted rows; those of all rows are read for them."""
        array = next(column for column in self._columns if column.name == "y")
        with self._opened() as archive, _Stream(archive, array) as stream:
            values = np.frombuffer(stream.read(self.count), array.dtype)
        return _labels(values[wanted_between(wanted, 0, self.count)])

    def _bytes(self, start: int, size: int) -> bytes:
        with self._place.open() as file:
            content = os.pread(file.fileno(), size, start)
        if len(content) != size:
            raise BadFormat("array 'x' ends early or is damaged")
        return content


def open_npz(location: str, options: Npz) -> NpzReader:
    """The reader of this file. Raises DataFault.

    It has RandomAccess if the file is on this machine and its images are not compressed.
    """
    reader = NpzReader(location, options)
    is_here = isinstance(place(location), LocalPlace)
    return StoredNpzReader(location, options) if is_here and reader.has_stored_images() else reader


class _Stream:
    """The values of one array, read row by row in their order."""

    def __init__(self, archive: zipfile.ZipFile, array: _Array) -> None:
        self.name = array.name
        self._array = array
        self._file = _member(archive, array.name)
        self._file.read(array.header_bytes)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, rows: int) -> bytes:
        """The next rows' bytes."""
        size = rows * self._array.row_bytes
        try:
            content = self._file.read(size)
        except _TORN:
            content = b""
        if len(content) != size:
            raise self._torn()
        return content

    def skip(self, rows: int) -> None:
        """Pass over the next rows."""
        try:
            self._file.seek(rows * self._array.row_bytes, os.SEEK_CUR)
        except _TORN:
            raise self._torn() from None

    def finish(self) -> None:
        """Read to the end of the archive's member, where its checksum is compared."""
        try:
            self._file.read(1)
        except _TORN:
            raise self._torn() from None

    def _torn(self) -> BadFormat:
        return BadFormat(f"array {self.name!r} ends early or is damaged")


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        return archive.open(f"{name}.npy")
    except (KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile):
        raise BadFormat(f"the file has no readable array {name!r}") from None


def _described(archive: zipfile.ZipFile, name: str) -> _Array:
    """The array as its header describes it; nothing of that size is allocated."""
    with _member(archive, name) as stream:
        try:
            version = npy.read_magic(stream)
            shape, fortran_order, dtype = _HEADERS[version](stream)
        except (ValueError, KeyError, *_TORN):
            raise BadFormat(f"array {name!r} has no readable header") from None
        if dtype.hasobject or fortran_order:
            raise BadFormat(f"array {name!r} must hold plain values in C order")
        return _Array(name, shape, dtype, stream.tell())


def _checked_images(array: _Array) -> _Array:
    sides = array.shape[1:3]
    channels = array.shape[3:] or (1,)
    if array.dtype != np.uint8 or len(array.shape) not in {3, 4}:
        raise BadFormat("array 'x' must be uint8 of shape [N, H, W] or [N, H, W, C]")
    if not all(1 <= side <= LARGEST_SIDE for side in sides) or channels[0] not in {1, 3}:
        raise BadFormat(f"images must be at most {LARGEST_SIDE} pixels a side, of 1 or 3 channels")
    return array


def _checked_column(array: _Array, count: int) -> _Array:
    if array.shape != (count,):
        raise BadFormat(f"array {array.name!r} has shape {array.shape}, not ({count},) as 'x' demands")
    if not 1 <= array.dtype.itemsize <= _LARGEST_VALUE:
        raise BadFormat(f"array {array.name!r} has values of no bytes or of more than {_LARGEST_VALUE}")
    return array


def _labels(values: NDArray[Any]) -> NDArray[np.int64]:
    if values.dtype.kind not in "iu":
        return np.full(len(values), NO_LABEL, dtype=np.int64)
    too_large = values > np.iinfo(np.int64).max
    return np.where(too_large, NO_LABEL, values.astype(np.int64))


def _texts(values: NDArray[Any]) -> list[str]:
    """Text as it stands, bytes as UTF-8, integers written out; anything else is empty."""
    if values.dtype.kind == "U":
        return _unicode(values)
    if values.dtype.kind == "S":
        # A byte that is no UTF-8 becomes a character that is not printable, which is a fault of the row.
        return [value.decode(errors="surrogateescape") for value in values.tolist()]
    if values.dtype.kind in "iu":
        return [str(value) for value in values.tolist()]
    return [""] * len(values)


def _unicode(values: NDArray[Any]) -> list[str]:
    points = values.view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    if points.max(initial=0) > sys.maxunicode:
        raise BadFormat("an array of text holds numbers that are no characters")
    texts: list[str] = values.tolist()
    return texts


def _optional_texts(values: NDArray[Any] | None) -> Sequence[str | None] | None:
    return None if values is None else [text or None for text in _texts(values)]
