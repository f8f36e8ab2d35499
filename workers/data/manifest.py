"""The hashes that a data set's images were registered with, and the check of what training reads."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models_store.blobs import BlobStore
from workers.data.reader import DataChanged

_HASH_BYTES = 32
_MOST_ROWS = 10  # of those that changed, named by their number


@dataclass(frozen=True)
class Manifest:
    """SHA-256 of every row's image, uint8 [n, 32], in the order of the rows."""

    hashes: NDArray[np.uint8]

    def changed(self, ordinals: NDArray[np.int64], hashes: Sequence[bytes]) -> NDArray[np.int64]:
        """Those of the ordinals, int64 [m], whose image does not have the hash it was registered with."""
        found = np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, _HASH_BYTES)
        known = ordinals < len(self.hashes)
        differs = np.ones(len(ordinals), dtype=bool)
        differs[known] = (self.hashes[ordinals[known]] != found[known]).any(axis=1)
        return ordinals[differs]

    def check(self, ordinals: NDArray[np.int64], hashes: Sequence[bytes]) -> None:
        """Compare these rows. Raises DataChanged."""
        raise_if_any(self.changed(ordinals, hashes))


def raise_if_any(changed: NDArray[np.int64]) -> None:
    """Raise DataChanged if there is any row, int64 [m], that holds another image than was registered."""
    if len(changed):
        named = ", ".join(str(ordinal) for ordinal in changed[:_MOST_ROWS])
        more = ", …" if len(changed) > _MOST_ROWS else ""
        raise DataChanged(
            f"{len(changed)} rows hold other images than when they were registered (rows {named}{more}):"
            " register the changed data as a new version of the data set"
        )


def open_manifest(store: BlobStore, digest: str) -> Manifest:
    """The manifest with this digest, in a file of this process that has no name any more.

    Raises:
        BlobMissing, BlobDamaged, StoreUnavailable: it cannot be read from the store.
    """
    with tempfile.TemporaryDirectory(prefix="expunge-manifest-") as folder:
        path = Path(folder) / "manifest"
        store.fetch(digest, path)
        # The mapping outlives the file's name.
        return Manifest(np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _HASH_BYTES))
