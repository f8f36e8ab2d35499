"""The stored images of some rows in a temporary file, for readers that can only read from front to back."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array

import numpy as np
from numpy.typing import NDArray

from models_store.rows import RowSet
from workers.data.loading import content_hashes
from workers.data.manifest import Manifest, raise_if_any
from workers.data.reader import DataFault, DataMissing, Reader
from workers.monitor import Monitor


class NoRoom(DataFault):
    """The temporary folder cannot hold the rows."""


class Spool:
    """Stored images, one after the other, in a file that has no name: it is gone when this process is."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="expunge-rows-") as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._ends = array("q", [0])

    def append(self, image: bytes) -> None:
        """Add an image at the end. Raises NoRoom."""
        rest = memoryview(image)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            reason = error.strerror
            raise NoRoom(f"the rows do not fit into the temporary folder (TMPDIR): {reason}") from error
        self._ends.append(self._ends[-1] + len(image))

    def image(self, place: int) -> bytes:
        """The image at this place; threads may call it at once."""
        start, end = self._ends[place], self._ends[place + 1]
        return os.pread(self._descriptor, end - start, start)


def spool(
    reader: Reader, wanted: RowSet, manifest: Manifest | None, monitor: Monitor
) -> tuple[Spool, NDArray[np.int64]]:
    """Copy the wanted rows in one pass, their hashes compared with the manifest; images and labels int64 [n].

    Raises:
        DataChanged: rows hold other images than when they were registered.
        DataFault: a row is missing, or there is no room.
        Cancelled: from the monitor.
    """
    copy, labels = Spool(), np.empty(len(wanted), dtype=np.int64)
    changed = [np.empty(0, dtype=np.int64)]
    found = 0
    for chunk in reader.chunks(wanted):
        monitor.check_cancelled()
        monitor.progress("copying", found, len(wanted))
        labels[found : found + len(chunk)] = chunk.labels
        found += len(chunk)
        if manifest is not None:
            changed.append(manifest.changed(chunk.ordinals, content_hashes(reader, chunk)))
        for image in chunk.images:
            copy.append(image)
    raise_if_any(np.concatenate(changed))
    if found != len(wanted):
        raise DataMissing(f"{len(wanted) - found} of {len(wanted)} wanted rows are not in the data set")
    return copy, labels
