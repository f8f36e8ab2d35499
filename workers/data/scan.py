"""Look through a whole data set while it is registered, and report every fault at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from workers.data.reader import SPLITS, BadFormat, Chunk, Reader, Shape, UnreadableImage
from workers.data.roles import UNKNOWN, Codes, split_codes
from workers.monitor import Monitor

_MOST_ROWS = 10**9 - 1  # what numpy draws from at once
_MOST_FAULTS = 20  # listed one by one; the rest are counted
_DECODED_ROWS = 512  # about so many images, evenly spaced, are decoded completely
_MOST_CLASSES = 10_000
_LONGEST_NAME = 512
_MISSING_CLASSES_NAMED = 3

_Fault = tuple[int, str]  # ordinal of the row, and what is wrong with it


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a data set is, and what is wrong with it: it may be registered only if `faults` is empty.

    Faults name rows by number (the ordinal, from 0), never by sample ID or subject.
    """

    count: int
    num_classes: int
    image_shape: Shape
    class_names: tuple[str, ...]
    splits: Codes  # of every row, in order
    faults: tuple[str, ...]


def scan(reader: Reader, monitor: Monitor) -> Scan:
    """Look through the data set without keeping its rows; repeated sample IDs are not noticed.

    Raises:
        DataFault: the data cannot be read to its end.
    """
    inspection = Inspection(reader)
    for _ in inspection.rows(monitor):
        pass
    return inspection.result()


class Inspection:
    """One pass over a data set, which is judged while its rows go by. Memory: a byte a row."""

    def __init__(self, reader: Reader) -> None:
        if reader.count > _MOST_ROWS:
            raise BadFormat(f"the data set has more than {_MOST_ROWS} rows")
        self._reader = reader
        self._names = reader.class_names
        self._num_classes = len(self._names) or _MOST_CLASSES
        self._decode_every = max(1, reader.count // _DECODED_ROWS)
        self._splits = bytearray()
        self._rows_of_class = np.zeros(self._num_classes, dtype=np.int64)
        self._shape: Shape | None = None
        self._faults: list[str] = []
        self._more_faults = 0

    def rows(self, monitor: Monitor) -> Iterator[Chunk]:
        """The data set's chunks, each after it was judged, as far as their rows can be stored at all.

        A row without a usable sample ID is left out, a label that is no class comes as 0.
        """
        for chunk in self._reader.chunks():
            monitor.check_cancelled()
            monitor.progress("reading", int(chunk.ordinals[0]), self._reader.count)
            yield self._judged(chunk)
        monitor.progress("reading", self._reader.count, self._reader.count)

    def result(self, repeats: Sequence[_Fault] = (), more_repeats: int = 0) -> Scan:
        """What was found; with faults that were found elsewhere, and how many of those are not listed."""
        for ordinal, fault in repeats:
            self._note(ordinal, fault)
        self._more_faults += more_repeats
        used = int(self._rows_of_class.nonzero()[0].max(initial=-1)) + 1
        return Scan(
            count=len(self._splits),
            num_classes=len(self._names) or used,
            image_shape=self._shape or (0, 0, 0),
            class_names=self._names,
            splits=np.frombuffer(self._splits, dtype=np.uint8),
            faults=tuple(self._all_faults(used)),
        )

    def _judged(self, chunk: Chunk) -> Chunk:
        labels = (chunk.labels >= 0) & (chunk.labels < self._num_classes)
        splits = split_codes(chunk.splits, len(chunk))
        named = _usable(chunk.sample_ids, needed=True)
        people = _usable(chunk.subjects or (), needed=False)
        faults = [
            *self._faults_of_ids(chunk, named),
            *self._faults_of_labels(chunk, labels),
            *_faults_at(chunk, splits != UNKNOWN, f"its split is none of {', '.join(sorted(SPLITS))}"),
            *_faults_at(
                chunk, people, f"its subject has unprintable characters or more than {_LONGEST_NAME}"
            ),
            *self._faults_of_images(chunk),
        ]
        for ordinal, fault in sorted(faults, key=lambda fault: fault[0]):
            self._note(ordinal, fault)
        self._splits += splits.tobytes()
        self._rows_of_class += np.bincount(chunk.labels[labels], minlength=self._num_classes)
        return chunk if named.all() and labels.all() and people.all() else _storable(chunk, named, labels)

    def _faults_of_ids(self, chunk: Chunk, usable: NDArray[np.bool_]) -> Iterator[_Fault]:
        for place in np.flatnonzero(~usable).tolist():
            if chunk.sample_ids[place]:
                fault = f"its sample ID has unprintable characters or more than {_LONGEST_NAME}"
            else:
                fault = "it has no sample ID"
            yield int(chunk.ordinals[place]), fault

    def _faults_of_labels(self, chunk: Chunk, usable: NDArray[np.bool_]) -> Iterator[_Fault]:
        for place in np.flatnonzero(~usable).tolist():
            label = chunk.labels[place]
            if label < 0:
                fault = "its label is missing, not an integer, or negative"
            else:
                fault = f"its label is {label}, but the classes end at {self._num_classes - 1}"
            yield int(chunk.ordinals[place]), fault

    def _faults_of_images(self, chunk: Chunk) -> Iterator[_Fault]:
        """What is wrong with the images, by their headers; a few are decoded completely."""
        for ordinal, image in zip(chunk.ordinals.tolist(), chunk.images, strict=True):
            try:
                shape = self._reader.shape(image)
                if ordinal % self._decode_every == 0:
                    self._reader.decode(image)
            except UnreadableImage as fault:
                yield ordinal, str(fault)
                continue
            self._shape = self._shape or shape
            if shape != self._shape:
                yield ordinal, f"the image has shape {shape}, the first one {self._shape}"

    def _note(self, ordinal: int, fault: str) -> None:
        if len(self._faults) < _MOST_FAULTS:
            self._faults.append(f"row {ordinal}: {fault}")
        else:
            self._more_faults += 1

    def _all_faults(self, used_classes: int) -> Iterator[str]:
        yield from self._faults
        if self._more_faults:
            yield f"and {self._more_faults} more faults"
        if not self._splits:
            yield "the data set has no rows"
        elif not self._names:
            yield from self._faults_of_classes(used_classes)
        elif len(self._names) < 2:
            yield "there are fewer than two classes"

    def _faults_of_classes(self, used: int) -> Iterator[str]:
        """What is wrong with the classes where only the labels say which there are."""
        missing = np.flatnonzero(self._rows_of_class[:used] == 0)
        if used == 1:
            yield "there are fewer than two classes"
        elif 2 * len(missing) > used:
            shown = ", ".join(str(label) for label in missing[:_MISSING_CLASSES_NAMED])
            more = ", …" if len(missing) > _MISSING_CLASSES_NAMED else ""
            yield (
                f"the largest label is {used - 1}, but {len(missing)} of the {used} classes up to it have no"
                f" row ({shown}{more}): name the classes in the reader's options if that is meant"
            )


def _usable(names: Sequence[str | None], *, needed: bool) -> NDArray[np.bool_]:
    """Which of the names are printable and not too long; with `needed`, also not empty. bool [n]."""
    given = [name for name in names if name]
    all_there = len(given) == len(names) or not needed
    # Looking at all at once is ten times as fast as one by one.
    if all_there and max(map(len, given), default=0) <= _LONGEST_NAME and "".join(given).isprintable():
        return np.ones(len(names), dtype=bool)
    return np.array([_is_usable(name) if name else not needed for name in names], dtype=bool)


def _is_usable(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and name.isprintable()


def _faults_at(chunk: Chunk, usable: NDArray[np.bool_], fault: str) -> Iterator[_Fault]:
    for place in np.flatnonzero(~usable).tolist():
        yield int(chunk.ordinals[place]), fault


def _storable(chunk: Chunk, named: NDArray[np.bool_], labelled: NDArray[np.bool_]) -> Chunk:
    """The rows with a sample ID, so that repeated IDs are found whatever else is wrong with the rows."""
    places = np.flatnonzero(named).tolist()
    return replace(
        chunk,
        ordinals=chunk.ordinals[places],
        sample_ids=[chunk.sample_ids[place] for place in places],
        labels=np.where(labelled, chunk.labels, 0)[places],
        splits=None,
        subjects=None,
        images=[chunk.images[place] for place in places],
    )
