"""Encoded images in parquet files, in the layout that Hugging Face data sets use."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, UnidentifiedImageError

from app.jobs.params import Parquet, ParquetFile
from models_store.rows import RowSet
from workers.data.reader import (
    LARGEST_SIDE,
    BadFormat,
    DataMissing,
    Images,
    Record,
    UnreadableImage,
    as_label,
    as_text,
)

_BATCH_ROWS = 256
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")


@dataclass(frozen=True)
class _Part:
    """One file: where it is, the ordinal of its first row, how many rows are taken, and their split."""

    path: Path
    first: int
    count: int
    split: str | None


class ParquetReader:
    """Rows of one or more parquet files, numbered through; see `app.jobs.params.Parquet`."""

    def __init__(self, location: str, options: Parquet) -> None:
        self._options = options
        self._parts = _parts(Path(location), options)
        self.class_names = options.class_names or _named_classes(self._parts[0].path, options.label_column)

    @property
    def count(self) -> int:
        return sum(part.count for part in self._parts)

    def records(self, wanted: RowSet | None = None) -> Iterator[Record]:
        try:
            for part in self._parts:
                yield from self._records_of(part, wanted)
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            raise BadFormat("a file of the data set ends early or is damaged") from None

    def shape(self, image: bytes) -> tuple[int, int, int]:
        with _opened(image) as picture:
            return (picture.height, picture.width, 1 if _is_grey(picture) else 3)

    def decode(self, image: bytes) -> Images:
        with _opened(image) as picture:
            try:
                converted = picture.convert("L" if _is_grey(picture) else "RGB")
            except (OSError, SyntaxError, ValueError):
                raise UnreadableImage("the image is damaged") from None
        pixels = np.asarray(converted, dtype=np.uint8)
        return pixels[:, :, None] if pixels.ndim == 2 else pixels

    def content_hash(self, image: bytes) -> bytes:
        return hashlib.sha256(image).digest()

    def _records_of(self, part: _Part, wanted: RowSet | None) -> Iterator[Record]:
        """The part's rows, skipping row groups that hold no wanted one."""
        with pq.ParquetFile(part.path) as file:
            start = part.first
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                ordinals = range(start, min(end, part.first + part.count))
                if any(wanted is None or ordinal in wanted for ordinal in ordinals):
                    yield from self._records_of_group(file, group, ordinals, part.split, wanted=wanted)
                start = end

    def _records_of_group(
        self, file: pq.ParquetFile, group: int, ordinals: range, split: str | None, *, wanted: RowSet | None
    ) -> Iterator[Record]:
        remaining = iter(ordinals)
        batches = file.iter_batches(
            _BATCH_ROWS, row_groups=[group], columns=_columns(self._options), use_threads=False
        )
        for batch in batches:
            values = zip(*(_values(batch, name) for name in _fields(self._options)), strict=True)
            for value, ordinal in zip(values, remaining, strict=False):
                if wanted is None or ordinal in wanted:
                    yield _record(ordinal, value, split)


def _fields(names: Parquet) -> tuple[str | None, ...]:
    """The columns, in the order in which the records are built from them."""
    return (
        names.id_column,
        names.label_column,
        names.split_column,
        names.subject_column,
        names.image_column,
    )


def _columns(options: Parquet) -> list[str]:
    """The columns to read, each once."""
    return list(dict.fromkeys(name for name in _fields(options) if name is not None))


def _values(batch: pa.RecordBatch, name: str | None) -> list[Any]:
    return [None] * batch.num_rows if name is None else cast("list[Any]", batch.column(name).to_pylist())


def _parts(location: Path, options: Parquet) -> list[_Part]:
    """The files of the data set and their row counts. Raises DataMissing or BadFormat for all bad files."""
    chosen = _chosen_files(location, options.files)
    faults, parts, first = [], [], 0
    for number, (path, choice) in enumerate(chosen, start=1):
        try:
            count = min(_row_count(path, options), choice.limit or 2**63)
        except BadFormat as fault:
            faults.append(f"file {number}: {fault}")
        else:
            parts.append(_Part(path, first, count, choice.split))
            first += count
    if faults:
        raise BadFormat("; ".join(faults))
    return parts


def _chosen_files(location: Path, files: tuple[ParquetFile, ...]) -> list[tuple[Path, ParquetFile]]:
    if location.is_file() and not files:
        return [(location, ParquetFile(path=location.name))]
    if not location.is_dir():
        raise DataMissing(
            "there is no folder at the location" if files else "there is nothing at the location"
        )
    listed = files or tuple(ParquetFile(path=path.name) for path in sorted(location.glob("*.parquet")))
    if not listed:
        raise DataMissing("the folder at the location holds no .parquet file")
    return [(_inside(location, number, choice), choice) for number, choice in enumerate(listed, start=1)]


def _inside(folder: Path, number: int, choice: ParquetFile) -> Path:
    """The file's real path, which no symbolic link may lead out of the folder."""
    path = (folder / choice.path).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise DataMissing(f"file {number} of the data set is not in the folder at the location")
    return path


def _row_count(path: Path, options: Parquet) -> int:
    """How many rows the file has, once it is known to have the columns. Raises BadFormat."""
    try:
        with pq.ParquetFile(path) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError):
        raise BadFormat("it is not a parquet file") from None
    if missing := [name for name in _columns(options) if schema.names.count(name) != 1]:
        raise BadFormat(f"it has not exactly one column {', '.join(missing)}")
    if not _holds_images(schema.field(options.image_column).type):
        raise BadFormat("its image column is neither binary nor a struct with a binary field 'bytes'")
    return int(count)


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and _holds_images(kind.field(place).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _named_classes(path: Path, label_column: str) -> tuple[str, ...]:
    """The class names that a Hugging Face data set keeps in its schema's metadata, if it does."""
    metadata = (pq.read_schema(path).metadata or {}).get(b"huggingface", b"{}")
    try:
        names = json.loads(metadata)["info"]["features"][label_column]["names"]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def _record(ordinal: int, values: tuple[Any, ...], split: str | None) -> Record:
    sample_id, label, row_split, subject, image = values
    return Record(
        ordinal,
        as_text(sample_id),
        as_label(label),
        split or as_text(row_split) or None,
        as_text(subject) or None,
        _image_bytes(image),
    )


def _image_bytes(value: object) -> bytes:
    content = value.get("bytes") if isinstance(value, dict) else value
    return content if isinstance(content, bytes) else b""


def _opened(image: bytes) -> Image.Image:
    """The picture with its header read and its size bounded, but no pixel decoded yet."""
    try:
        picture = Image.open(io.BytesIO(image), formats=_FORMATS)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise UnreadableImage("there are no bytes of a BMP, JPEG, PNG or WEBP image") from None
    if max(picture.size) > LARGEST_SIDE:
        raise UnreadableImage(f"the image is larger than {LARGEST_SIDE} pixels a side")
    return picture


def _is_grey(picture: Image.Image) -> bool:
    return picture.mode in {"1", "L"}
