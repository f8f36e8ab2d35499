"""Lists of items as files: one JSON object a line, or CSV with a header; read as a stream."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal, NamedTuple

from pydantic import ValidationError

from app.deletions.matching import Item
from app.deletions.schemas import NewItem
from app.errors import Faults, faults_of

MediaType = Literal["application/x-ndjson", "text/csv"]
MEDIA_TYPES: tuple[MediaType, ...] = ("application/x-ndjson", "text/csv")
_LONGEST_LINE = 16 * 1024  # bytes
# Printable ASCII without anything that JSON escapes, of a length that NewItem takes.
_PLAIN = re.compile(rb'\{\s*"sample_id"\s*:\s*"([ !#-\[\]-~]{1,1000})"\s*\}')
_COLUMNS = frozenset({"dataset", "sample_id", "subject"})


def pointer(place: int, field: str) -> str:
    """A place in a file as faults have it: lines are counted from 1."""
    return f"line {place}: {field}"


class Plain(NamedTuple):
    """An item that is a sample ID and nothing else."""

    sample_id: str
    dataset: str | None = None
    subject: str | None = None


def _plain(line: bytes) -> Plain | None:
    """The item, if it is what nearly every line of a long list is: this takes a third of the time."""
    found = _PLAIN.fullmatch(line)
    return Plain(found[1].decode()) if found else None


@dataclass(frozen=True)
class ItemList:
    """The items of a file. What is wrong with a line is added to `faults`, and the line is left out."""

    file: IO[bytes]
    media_type: MediaType
    faults: Faults

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        """Each item with the number of its line."""
        return self._csv() if self.media_type == "text/csv" else self._ndjson()

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, without their ends."""
        number = 0
        while line := self.file.readline(_LONGEST_LINE + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if len(line) > _LONGEST_LINE:
                self.faults.add(f"line {number}", f"is longer than {_LONGEST_LINE} bytes")
                self._skip_line()
            elif stripped := line.strip():
                yield number, stripped

    def _skip_line(self) -> None:
        while (rest := self.file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass

    def _ndjson(self) -> Iterator[tuple[int, Item]]:
        for number, line in self._lines():
            item: Item | None = _plain(line)
            if item is None:
                try:
                    item = NewItem.model_validate_json(line)
                except ValidationError as error:
                    self._add_faults(number, error)
                    continue
            yield number, item

    def _csv(self) -> Iterator[tuple[int, Item]]:
        text = io.TextIOWrapper(self.file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        try:
            yield from self._rows(csv.reader(_bounded(text), strict=True))
        except csv.Error:
            self.faults.add("body", f"is not CSV, or has a line of more than {_LONGEST_LINE} characters")
        finally:
            text.detach()

    def _rows(self, reader: Iterator[list[str]]) -> Iterator[tuple[int, Item]]:
        header = next(reader, [])
        if not header or not set(header) <= _COLUMNS or len(set(header)) != len(header):
            self.faults.add("line 1", "must name the columns: sample_id or subject, and perhaps dataset")
            return
        for row in reader:
            number = getattr(reader, "line_num", 0)
            if len(row) == len(header):
                given = {name: value for name, value in zip(header, row, strict=True) if value}
                try:
                    yield number, NewItem.model_validate(given)
                except ValidationError as error:
                    self._add_faults(number, error)
            elif row:
                self.faults.add(f"line {number}", f"has {len(row)} columns, not {len(header)}")

    def _add_faults(self, number: int, error: ValidationError) -> None:
        for fault in faults_of(error):
            self.faults.add(pointer(number, fault.pointer.lstrip("/") or "item"), fault.detail)


def _bounded(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a text, as long as none is too long to hold."""
    while line := text.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise csv.Error("line too long")
        yield line
