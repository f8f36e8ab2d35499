"""Blobs in a local folder, or one that a network file system shares: files named by their digests."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from models_store.backend import Blob, is_digest


class FolderBackend:
    """Implements `Backend`: the blob of digest abcd… is the file `ab/abcd…`.

    A blob counts as stored once its content and its name have reached the disk, so no crash leaves a name
    with less than its content. Storing is a rename, under a lock that many may share; a conditional removal
    holds it alone, so that nothing is stored between its look at the time and the removal.
    """

    draft_mode = 0o666  # as any other file here: API and workers may be different users of one group

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def draft_folder(self) -> Path:
        """Inside the root, where a rename moves a draft into its place."""
        return self._root / "drafts"

    def keep(self, draft: Path, digest: str) -> None:
        """Flush the draft and move it into its place."""
        place = self._place(digest)
        _create(place.parent)
        flush(draft)
        with self._locked(fcntl.LOCK_SH):
            os.utime(draft)
            draft.replace(place)
        flush(place.parent)

    def open(self, digest: str) -> BinaryIO:
        """The file."""
        return self._place(digest).open("rb")

    def find(self, digest: str) -> Blob:
        """The file's size and time."""
        return _described(self._place(digest))

    def delete(self, digest: str, *, unless_modified_since: datetime | None) -> bool:
        """Remove the file."""
        place = self._place(digest)
        if not place.exists():
            return False
        with self._locked(fcntl.LOCK_EX), suppress(FileNotFoundError):
            if unless_modified_since is None or _described(place).modified < unless_modified_since:
                place.unlink()
                return True
        return False

    def blobs(self) -> Iterator[Blob]:
        """Every file that has a digest for a name."""
        for folder in self._root.glob("[0-9a-f][0-9a-f]"):
            with os.scandir(folder) as entries:
                for entry in entries:
                    if is_digest(entry.name):
                        with suppress(FileNotFoundError):  # removed since it was listed
                            yield _described(Path(entry.path))

    def _place(self, digest: str) -> Path:
        return self._root / digest[:2] / digest

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        with (self._root / "lock").open("a") as file:
            fcntl.flock(file, kind)
            yield


def _described(place: Path) -> Blob:
    found = place.stat()
    return Blob(place.name, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _create(folder: Path) -> None:
    """Make the folder and those above it, and see that its name reaches the disk, whoever made it."""
    if not folder.is_dir():
        _create(folder.parent)
        folder.mkdir(exist_ok=True)
    flush(folder.parent)


def flush(path: Path) -> None:
    """Wait until the file's content, or the folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
