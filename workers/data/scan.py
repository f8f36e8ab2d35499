"""Look through a whole data set before it is registered, and report every fault at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from workers.data.reader import NO_LABEL, SPLITS, Reader, Record, UnreadableImage
from workers.monitor import Monitor

_MOST_FAULTS = 20  # listed one by one; the rest are counted
_DECODED_ROWS = 512  # about so many images, evenly spaced, are decoded completely
_MOST_CLASSES = 10_000
_LONGEST_NAME = 512
_LOOK_UP_EVERY = 256  # rows between two looks at the monitor


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a data set is, and what is wrong with it: it may be registered only if `faults` is empty.

    Faults name rows by number (the ordinal, from 0), never by sample ID or subject.
    """

    count: int
    num_classes: int
    image_shape: tuple[int, int, int]  # height, width, channels
    class_names: tuple[str, ...]
    splits: list[str | None]  # of every row, in order
    faults: tuple[str, ...]


def scan(reader: Reader, monitor: Monitor) -> Scan:
    """Read every row once, check it, and decode a sample of the images.

    Memory: 16 bytes a row for finding repeated IDs, and the splits.

    Raises:
        DataFault: the file cannot be read to its end.
    """
    findings = _Findings(names=reader.class_names)
    decode_every = max(1, reader.count // _DECODED_ROWS)
    for record in reader.records():
        if record.ordinal % _LOOK_UP_EVERY == 0:
            monitor.check_cancelled()
            monitor.progress("scan", record.ordinal, reader.count)
        findings.look_at(record)
        findings.look_at_image(reader, record, decode=record.ordinal % decode_every == 0)
    monitor.progress("scan", reader.count, reader.count)
    findings.compare_ids()
    return findings.result()


@dataclass
class _Findings:
    """What has been seen so far."""

    names: tuple[str, ...]
    faults: list[str] = field(default_factory=list)
    more_faults: int = 0
    splits: list[str | None] = field(default_factory=list)
    shape: tuple[int, int, int] | None = None
    largest_label: int = NO_LABEL
    id_hashes: bytearray = field(default_factory=bytearray)

    def look_at(self, record: Record) -> None:
        self.splits.append(record.split)
        self.largest_label = max(self.largest_label, record.label)
        self.id_hashes += hashlib.blake2b(record.sample_id.encode(errors="replace"), digest_size=16).digest()
        for fault in _faults_of(record, len(self.names) or _MOST_CLASSES):
            self._note(record.ordinal, fault)

    def look_at_image(self, reader: Reader, record: Record, *, decode: bool) -> None:
        try:
            shape = reader.shape(record.image)
            if decode:
                reader.decode(record.image)
        except UnreadableImage as fault:
            self._note(record.ordinal, str(fault))
            return
        self.shape = self.shape or shape
        if shape != self.shape:
            self._note(record.ordinal, f"the image has shape {shape}, the first one {self.shape}")

    def compare_ids(self) -> None:
        """Note every row whose ID an earlier row has; empty IDs were noted already."""
        hashes = np.frombuffer(self.id_hashes, dtype="V16")
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        empty = hashlib.blake2b(b"", digest_size=16).digest()
        for ordinal in np.flatnonzero(first[place] != np.arange(len(hashes))):
            if hashes[ordinal].tobytes() != empty:
                self._note(int(ordinal), f"it has the same sample ID as row {first[place[ordinal]]}")

    def result(self) -> Scan:
        if not self.splits:
            self.faults.append("the data set has no rows")
        elif self.largest_label == 0 and len(self.names) < 2:
            self.faults.append("there are fewer than two classes")
        if self.more_faults:
            self.faults.append(f"and {self.more_faults} more faults")
        return Scan(
            count=len(self.splits),
            num_classes=len(self.names) or min(self.largest_label + 1, _MOST_CLASSES),
            image_shape=self.shape or (0, 0, 0),
            class_names=self.names,
            splits=self.splits,
            faults=tuple(self.faults),
        )

    def _note(self, ordinal: int, fault: str) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(f"row {ordinal}: {fault}")
        else:
            self.more_faults += 1


def _faults_of(record: Record, num_classes: int) -> Iterator[str]:
    """What is wrong with the row besides its image."""
    if not record.sample_id:
        yield "it has no sample ID"
    elif len(record.sample_id) > _LONGEST_NAME or not record.sample_id.isprintable():
        yield f"its sample ID has unprintable characters or more than {_LONGEST_NAME}"
    if record.label < 0:
        yield "its label is missing, not an integer, or negative"
    elif record.label >= num_classes:
        yield f"its label is {record.label}, but the classes end at {num_classes - 1}"
    if record.split is not None and record.split not in SPLITS:
        yield f"its split is none of {', '.join(sorted(SPLITS))}"
    if record.subject and (len(record.subject) > _LONGEST_NAME or not record.subject.isprintable()):
        yield f"its subject has unprintable characters or more than {_LONGEST_NAME}"
