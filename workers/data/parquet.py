"""Encoded images in parquet files, in the layout that Hugging Face data sets use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.jobs.params import Parquet, ParquetFile
from models_store.rows import RowSet
from workers.data.images import Decoder
from workers.data.place import Place, place
from workers.data.reader import (
    NO_LABEL,
    BadFormat,
    Chunk,
    DataMissing,
    Images,
    Shape,
    rows_a_chunk,
    wanted_between,
)

_BATCH_ROWS = 1024  # a dictionary may stand for more bytes than the file says
_READ_BYTES = 1024 * 1024  # of a column that are read ahead; else a row group's whole column would be


@dataclass(frozen=True)
class _Part:
    """One file: where it is, the ordinal of its first row, how many rows are taken, and their split."""

    path: str  # in the location
    first: int
    count: int
    split: str | None


class ParquetReader:
    """Rows of one or more parquet files, numbered through; see `app.jobs.params.Parquet`."""

    def __init__(self, location: str, options: Parquet) -> None:
        self._options = options
        self._decoder = Decoder(resize=options.resize, channels=options.channels)
        self._place = place(location)
        self._parts = _parts(self._place, options)
        self.class_names = options.class_names or _named_classes(
            self._place, self._parts[0].path, options.label_column
        )

    @property
    def count(self) -> int:
        return sum(part.count for part in self._parts)

    def chunks(self, wanted: RowSet | None = None) -> Iterator[Chunk]:
        try:
            for part in self._parts:
                yield from self._chunks_of(part, wanted)
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            raise BadFormat("a file of the data set ends early or is damaged") from None

    def shape(self, image: bytes) -> Shape:
        return self._decoder.shape(image)

    def decode(self, image: bytes) -> Images:
        return self._decoder.decode(image)

    def content_hash(self, image: bytes) -> bytes:
        return self._decoder.content_hash(image)

    def _chunks_of(self, part: _Part, wanted: RowSet | None) -> Iterator[Chunk]:
        """The part's rows, skipping row groups that hold no wanted one."""
        with self._place.open(part.path) as source, pq.ParquetFile(source, buffer_size=_READ_BYTES) as file:
            start = part.first
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                end = min(start + size, part.first + part.count)
                if len(wanted_between(wanted, start, end)):
                    yield from self._chunks_of_group(file, group, part.split, range(start, end), wanted)
                start += size

    def _chunks_of_group(
        self, file: pq.ParquetFile, group: int, split: str | None, rows: range, wanted: RowSet | None
    ) -> Iterator[Chunk]:
        facts = file.metadata.row_group(group)
        batches = file.iter_batches(
            min(_BATCH_ROWS, rows_a_chunk(facts.total_byte_size // facts.num_rows)),
            row_groups=[group],
            columns=_columns(self._options),
            use_threads=False,
        )
        start = rows.start
        for batch in batches:
            ordinals = wanted_between(wanted, start, min(start + batch.num_rows, rows.stop))
            if len(ordinals):
                yield self._chunk(batch.take(pa.array(ordinals - start)), ordinals, split)
            start += batch.num_rows
            if start >= rows.stop:
                return

    def _chunk(self, batch: pa.RecordBatch, ordinals: NDArray[np.int64], split: str | None) -> Chunk:
        names = self._options
        return Chunk(
            ordinals,
            [text or "" for text in _texts(batch.column(names.id_column))],
            _labels(batch.column(names.label_column)),
            [split] * len(ordinals) if split else _optional_texts(batch, names.split_column),
            _optional_texts(batch, names.subject_column),
            _image_bytes(batch.column(names.image_column)),
        )


def _columns(names: Parquet) -> list[str]:
    """The columns to read, each once."""
    all_names = (
        names.id_column,
        names.label_column,
        names.split_column,
        names.subject_column,
        names.image_column,
    )
    return list(dict.fromkeys(name for name in all_names if name is not None))


def _parts(at: Place, options: Parquet) -> list[_Part]:
    """The files of the data set and their row counts. Raises DataMissing or BadFormat for all bad files."""
    faults, parts, first = [], [], 0
    for number, choice in enumerate(_chosen_files(at, options.files), start=1):
        try:
            count = min(_row_count(at, choice.path, options), choice.limit or 2**63)
        except DataMissing:
            raise DataMissing(f"file {number} of the data set is not in the folder at the location") from None
        except BadFormat as fault:
            faults.append(f"file {number}: {fault}")
        else:
            parts.append(_Part(choice.path, first, count, choice.split))
            first += count
    if faults:
        raise BadFormat("; ".join(faults))
    return parts


class _Choice(NamedTuple):
    """A file to read; the path of the location itself is empty."""

    path: str
    split: str | None = None
    limit: int | None = None


def _chosen_files(at: Place, files: tuple[ParquetFile, ...]) -> list[_Choice]:
    if not files and at.has():
        return [_Choice("")]
    if not at.is_folder():
        raise DataMissing(
            "there is no folder at the location" if files else "there is nothing at the location"
        )
    listed = [_Choice(file.path, file.split, file.limit) for file in files]
    listed = listed or [_Choice(name) for name in at.names(".parquet")]
    if not listed:
        raise DataMissing("the folder at the location holds no .parquet file")
    return listed


def _row_count(at: Place, path: str, options: Parquet) -> int:
    """How many rows the file has, once it is known to have the columns. Raises DataMissing or BadFormat."""
    try:
        with at.open(path) as source, pq.ParquetFile(source) as file:
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


def _named_classes(at: Place, path: str, label_column: str) -> tuple[str, ...]:
    """The class names that a Hugging Face data set keeps in its schema's metadata, if it does."""
    with at.open(path) as source:
        metadata = (pq.read_schema(source).metadata or {}).get(b"huggingface", b"{}")
    try:
        names = json.loads(metadata)["info"]["features"][label_column]["names"]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def _plain(column: pa.Array) -> pa.Array:
    """The column with its values in place, where it is a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _texts(column: pa.Array) -> list[str | None]:
    """Text as it stands, integers written out; None for nothing and for anything else."""
    column = _plain(column)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return [None] * len(column)
    return cast("list[str | None]", column.to_numpy(zero_copy_only=False).tolist())


def _optional_texts(batch: pa.RecordBatch, name: str | None) -> list[str | None] | None:
    return None if name is None else [text or None for text in _texts(batch.column(name))]


def _labels(column: pa.Array) -> NDArray[np.int64]:
    column = _plain(column)
    if not pa.types.is_integer(column.type):
        return np.full(len(column), NO_LABEL, dtype=np.int64)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    usable = column.is_valid().to_numpy(zero_copy_only=False) & (values <= np.iinfo(np.int64).max)
    return np.where(usable, values.astype(np.int64), NO_LABEL)


def _image_bytes(column: pa.Array) -> list[bytes]:
    """The encoded images; empty where there is none."""
    column = _plain(column)
    if pa.types.is_struct(column.type):
        column = _plain(pc.struct_field(column, "bytes"))
    return [content or b"" for content in column.to_numpy(zero_copy_only=False).tolist()]
