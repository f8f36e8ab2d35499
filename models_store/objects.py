"""Blobs as objects of any file system that fsspec knows: S3 and what speaks its protocol, and others."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from models_store.backend import Blob, is_digest

# Read and sent at once; times 10,000 parts it is also the largest blob: 78 GiB.
_PART_BYTES = 8 * 1024 * 1024


class ObjectBackend:
    """Implements `Backend`: the blob of digest abcd… is the object `ab/abcd…` under the root.

    An object appears whole or not at all, so nothing is moved: a draft is a local temporary file that is
    sent when it is complete. Storing the same content again sends it again, which renews its time.

    A conditional removal asks for the time and then removes. There is no lock between the two: content that
    is stored again within that one round trip is removed. Folders have no such gap.
    """

    draft_mode = 0o600  # temporary folders are shared with strangers

    def __init__(self, file_system: Any, root: str) -> None:  # noqa: ANN401  (fsspec has no types)
        self._fs = file_system
        self._root = root.rstrip("/")

    @property
    def draft_folder(self) -> Path:
        """The machine's folder for temporary files."""
        return Path(tempfile.gettempdir())

    def keep(self, draft: Path, digest: str) -> None:
        """Send the file; the object appears when its last byte has arrived."""
        self._fs.put_file(str(draft), self._place(digest), chunksize=_PART_BYTES, max_concurrency=2)

    def open(self, digest: str) -> BinaryIO:
        """The object, fetched part by part as it is read."""
        with self._root_exists():
            file: BinaryIO = self._fs.open(self._place(digest), "rb", block_size=_PART_BYTES)
        return file

    def find(self, digest: str) -> Blob:
        """The object's size and time."""
        with self._root_exists():
            return self._described(self._fs.info(self._place(digest)))

    def delete(self, digest: str, *, unless_modified_since: datetime | None) -> bool:
        """Remove the object."""
        try:
            found = self.find(digest)
            if unless_modified_since is not None and found.modified >= unless_modified_since:
                return False
            self._fs.rm_file(self._place(digest))
        except FileNotFoundError:
            return False
        return True

    def blobs(self) -> Iterator[Blob]:
        """Every object that has a digest for a name, listed one prefix after the other."""
        for folder in self._listed(self._root):
            if folder["type"] == "directory":
                for entry in self._listed(folder["name"]):
                    if is_digest(_name(entry)):
                        yield self._described(entry)

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        try:
            with self._root_exists():
                entries: list[dict[str, Any]] = self._fs.ls(folder, detail=True)
        except FileNotFoundError:  # a folder is there as long as an object is in it
            return []
        return entries

    @contextmanager
    def _root_exists(self) -> Iterator[None]:
        """What is missing in a bucket that is missing itself is no missing object."""
        try:
            yield
        except FileNotFoundError:
            bucket = self._root.partition("/")[0]
            if not self._fs.exists(bucket):
                raise OSError(f"there is no bucket {bucket}, or it may not be seen") from None
            raise

    def _described(self, entry: dict[str, Any]) -> Blob:
        modified = entry.get("LastModified") or self._fs.modified(entry["name"])
        return Blob(_name(entry), entry["size"], modified)

    def _place(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"


def _name(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rpartition("/")[2]
