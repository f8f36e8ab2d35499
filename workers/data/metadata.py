"""Tables that say of image files what they are: CSV, JSON lines or parquet, read as a stream."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from workers.data.place import Place
from workers.data.reader import BadFormat, as_text
from workers.data.texts import Texts

_LONGEST_LINE = 1024 * 1024  # characters
_BATCH_ROWS = 4096


@dataclass(frozen=True)
class Metadata:
    """The columns of the table, empty where a row has no value; integers are written out."""

    file: Texts = field(default_factory=Texts)
    sample_id: Texts = field(default_factory=Texts)
    subject: Texts = field(default_factory=Texts)
    split: Texts = field(default_factory=Texts)
    label: Texts = field(default_factory=Texts)


_COLUMNS = tuple(column.name for column in fields(Metadata))


def read_metadata(place: Place, path: str) -> Metadata:
    """The table at `path`, whose ending says what it is; columns of other names are passed over.

    Raises:
        DataMissing: there is no such file at the location.
        BadFormat: the file is not such a table, or has no column `file`; the message names the line.
    """
    reader = _FORMATS.get(path.rpartition(".")[2].lower())
    if reader is None:
        raise BadFormat(f"the metadata file must end with one of: {', '.join(f'.{end}' for end in _FORMATS)}")
    metadata = Metadata()
    columns = [(name, getattr(metadata, name)) for name in _COLUMNS]
    with place.open(path) as file:
        for row in reader(file):
            for name, column in columns:
                column.append(as_text(row.get(name)))
    return metadata


def _csv(file: BinaryIO) -> Iterator[Mapping[str, Any]]:
    with _decoded(file) as text:
        lines = csv.reader(_lines(text), strict=True)
        try:
            names = next(lines, [])
            if names.count("file") != 1:
                raise BadFormat("the metadata file has not exactly one column file")
            for cells in lines:
                if len(cells) > len(names):
                    raise BadFormat(
                        f"the metadata file's line {lines.line_num} has more cells than the first"
                    )
                if cells:
                    yield dict(zip(names, cells, strict=False))
        except csv.Error:
            raise BadFormat(f"the metadata file's line {lines.line_num} is not CSV") from None


def _json_lines(file: BinaryIO) -> Iterator[Mapping[str, Any]]:
    with _decoded(file) as text:
        for number, line in enumerate(_lines(text), start=1):
            if line.strip():
                yield _json_object(line, number)


def _json_object(line: str, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise BadFormat(f"the metadata file's line {number} is not JSON") from None
    if not isinstance(row, dict) or "file" not in row:
        raise BadFormat(f"the metadata file's line {number} is not an object with a member file")
    return row


def _parquet(file: BinaryIO) -> Iterator[Mapping[str, Any]]:
    try:
        table = pq.ParquetFile(file)
        names = [name for name in _COLUMNS if table.schema_arrow.names.count(name) == 1]
        if "file" not in names:
            raise BadFormat("the metadata file has not exactly one column file")
        for batch in table.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise BadFormat("the metadata file is not a parquet file, or is damaged") from None


_FORMATS = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet}


def _decoded(file: BinaryIO) -> TextIO:
    """The file as UTF-8, with or without a byte order mark."""
    return io.TextIOWrapper(file, encoding="utf-8-sig", newline="")


def _lines(text: TextIO) -> Iterator[str]:
    number = 0
    try:
        while line := text.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE:
                raise BadFormat(f"the metadata file's line {number} is too long")
            yield line
    except UnicodeDecodeError:
        raise BadFormat(f"the metadata file is not UTF-8 after line {number}") from None
