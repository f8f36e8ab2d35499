"""Lists of items as files: one JSON object a line, or CSV with a header; read as a stream."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Literal

from pydantic import TypeAdapter, ValidationError

from app.deletions.matching import BATCH, Batch, Numbered, Run
from app.deletions.schemas import NewItem, SampleId
from app.errors import Faults, faults_of

MediaType = Literal["application/x-ndjson", "text/csv"]
MEDIA_TYPES: tuple[MediaType, ...] = ("application/x-ndjson", "text/csv")
_LONGEST_LINE = 16 * 1024  # bytes
_BLOCK = 128 * 1024  # bytes read at a time
# A line that is a sample ID and nothing else: printable ASCII without anything that JSON escapes, of a length
# that NewItem takes. Lines of this kind are read a block at a time, in a tenth of the time of one by one.
_GAP = rb"[ \t]{0,8}"
_PLAIN = re.compile(
    rb"^" + _GAP.join((b"", rb"\{", b'"sample_id"', b":", rb'"([ !#-\[\]-~]{1,1000})"', rb"\}", rb"\r?\n")),
    re.MULTILINE,
)
_SAMPLE_IDS = TypeAdapter(list[SampleId])
_COLUMNS = frozenset({"dataset", "sample_id", "subject"})


def pointer(place: int, field: str) -> str:
    """A place in a file as faults have it: lines are counted from 1."""
    return f"line {place}: {field}"


@dataclass(frozen=True)
class ItemList:
    """The items of a file. What is wrong with a line is added to `faults`, and the line is left out."""

    file: IO[bytes]
    media_type: MediaType
    faults: Faults

    def __iter__(self) -> Iterator[Batch]:
        """The items, each with the number of its line."""
        return self._csv() if self.media_type == "text/csv" else self._ndjson()

    def _ndjson(self) -> Iterator[Batch]:
        number = 1
        for block in self._blocks():
            lines = block.count(b"\n")
            plain = _PLAIN.findall(block)
            if len(plain) == lines:
                yield Run(range(number, number + lines), [sample_id.decode() for sample_id in plain])
            else:
                yield list(self._items(block, number))
            number += lines

    def _blocks(self) -> Iterator[bytes]:
        """The file in pieces of whole lines, each with its end; too long a line is cut, its rest left out."""
        mark = b"\xef\xbb\xbf"
        while block := self.file.read(_BLOCK):
            if not block.endswith(b"\n"):
                block += self.file.readline(_LONGEST_LINE + 1)
            if not block.endswith(b"\n"):
                self._skip_line()
                block += b"\n"
            yield block.removeprefix(mark)
            mark = b""

    def _skip_line(self) -> None:
        while (rest := self.file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass

    def _items(self, block: bytes, first: int) -> Iterator[Numbered]:
        """The items of lines that may be of any kind, or empty."""
        for number, line in enumerate(block.split(b"\n"), first):
            if len(line) > _LONGEST_LINE:
                self.faults.add(f"line {number}", f"is longer than {_LONGEST_LINE} bytes")
            elif stripped := line.strip():
                try:
                    yield number, NewItem.model_validate_json(stripped)
                except ValidationError as error:
                    self._add_faults(number, error)

    def _csv(self) -> Iterator[Batch]:
        text = io.TextIOWrapper(self.file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        try:
            yield from self._rows(csv.reader(_bounded(text), strict=True))
        except csv.Error:
            self.faults.add("body", f"is not CSV, or has a line of more than {_LONGEST_LINE} characters")
        finally:
            text.detach()

    def _rows(self, reader: Iterator[list[str]]) -> Iterator[Batch]:
        header = next(reader, [])
        if not header or not set(header) <= _COLUMNS or len(set(header)) != len(header):
            self.faults.add("line 1", "must name the columns: sample_id or subject, and perhaps dataset")
            return
        numbered = ((getattr(reader, "line_num", 0), row) for row in reader if row)
        while rows := list(islice(numbered, BATCH)):
            yield (_run(rows) if header == ["sample_id"] else None) or list(self._parsed(header, rows))

    def _parsed(self, header: list[str], rows: Sequence[tuple[int, list[str]]]) -> Iterator[Numbered]:
        """The items of rows that may be of any kind."""
        for number, row in rows:
            if len(row) != len(header):
                self.faults.add(f"line {number}", f"has {len(row)} columns, not {len(header)}")
                continue
            given = {name: value for name, value in zip(header, row, strict=True) if value}
            try:
                yield number, NewItem.model_validate(given)
            except ValidationError as error:
                self._add_faults(number, error)

    def _add_faults(self, number: int, error: ValidationError) -> None:
        for fault in faults_of(error):
            self.faults.add(pointer(number, fault.pointer.lstrip("/") or "item"), fault.detail)


def _run(rows: Sequence[tuple[int, list[str]]]) -> Run | None:
    """The sample IDs of rows that have no other column, if nothing is wrong with any."""
    try:
        sample_ids = _SAMPLE_IDS.validate_python([cell for _, row in rows for cell in row])
    except ValidationError:
        return None
    return Run([number for number, _ in rows], sample_ids) if len(sample_ids) == len(rows) else None


def _bounded(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a text, as long as none is too long to hold."""
    while line := text.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise csv.Error("line too long")
        yield line
