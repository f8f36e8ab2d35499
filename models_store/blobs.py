"""Content-addressed blobs on any fsspec URL: named by their SHA-256, written whole, checked on every read.

Nothing here needs memory for a whole blob but `put` and `get`, whose argument or result it is.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from models_store.backend import Backend, Blob, is_digest
from models_store.folder import FolderBackend
from models_store.objects import ObjectBackend

__all__ = ["Blob", "BlobDamaged", "BlobMissing", "BlobStore", "Draft", "StoreUnavailable", "reaching"]

CHUNK_BYTES = 1024 * 1024
_DRAFT = "expunge-draft-"


class BlobMissing(Exception):
    """No blob has this digest."""


class BlobDamaged(Exception):
    """The blob's content does not have the digest it is stored under."""


class StoreUnavailable(Exception):
    """The store cannot be reached, refuses access, or has no room. Trying again later may help."""


class Draft:
    """A blob that is being written: `keep` stores it, otherwise it leaves nothing behind.

    Attributes:
        path: A local file with everything written so far, to be inspected before it is kept; gone after.
        size: Bytes written so far.
    """

    def __init__(self, path: Path, file: BinaryIO, backend: Backend) -> None:
        self.path = path
        self.size = 0
        self._file = file
        self._backend = backend
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The SHA-256 of what was written so far."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append to the draft. Raises StoreUnavailable."""
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise _unavailable(error) from error
        self._hash.update(chunk)
        self.size += len(chunk)

    def keep(self) -> str:
        """Store the draft and return its digest; nothing can be written to it any more.

        Storing content that is there already renews its time and repairs it if it was damaged.

        Raises:
            StoreUnavailable: Nothing was stored.
        """
        self._file.close()
        with reaching():
            self._backend.keep(self.path, self.digest)
        return self.digest


@dataclass(frozen=True)
class BlobStore:
    """The store under `url`: a local folder path or any URL that fsspec knows (s3://…, gs://…, memory://…).

    Every method may raise StoreUnavailable, and those that take a digest ValueError if it is none.
    """

    url: str
    _backend: Backend = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        with reaching():
            file_system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
            is_local = isinstance(file_system, LocalFileSystem)
            backend = FolderBackend(Path(root)) if is_local else ObjectBackend(file_system, root)
        object.__setattr__(self, "_backend", backend)

    # --- in -------------------------------------------------------------------------------------------

    def put(self, content: bytes) -> str:
        """Store `content` and return its digest; storing the same content again only renews its time."""
        with self.draft() as draft:
            draft.write(content)
            return draft.keep()

    def put_file(self, path: Path) -> str:
        """Store the content of a local file and return its digest. Raises OSError if it cannot be read."""
        with path.open("rb") as file, self.draft() as draft:
            while chunk := file.read(CHUNK_BYTES):
                draft.write(chunk)
            return draft.keep()

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """A new draft for the length of the block; what was not kept by then is gone."""
        folder = self._backend.draft_folder
        path = folder / f"{_DRAFT}{uuid.uuid4().hex}"
        with reaching():
            folder.mkdir(parents=True, exist_ok=True)
            path.touch(mode=self._backend.draft_mode, exist_ok=False)
        try:
            # Unbuffered: whoever looks at the path sees all that was written.
            with path.open("wb", buffering=0) as file:
                yield Draft(path, file, self._backend)
        finally:
            path.unlink(missing_ok=True)

    # --- out ------------------------------------------------------------------------------------------

    def get(self, digest: str) -> bytes:
        """The blob's content. Raises BlobMissing or BlobDamaged."""
        with reaching(_checked(digest)), self._backend.open(digest) as file:
            content = file.read()
        _compare(hashlib.sha256(content).hexdigest(), digest)
        return content

    def chunks(self, digest: str, chunk_size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The blob's content in pieces of at most `chunk_size` bytes.

        Whether the content is right is known only at its end. The last piece is held back until then, so
        a receiver of a damaged blob gets less than `size` bytes; what it got must not be used.

        Raises:
            BlobMissing: At the call, before any piece is asked for.
            BlobDamaged: In place of the last piece.
        """
        self.size(digest)
        return self._chunks(digest, chunk_size)

    def _chunks(self, digest: str, chunk_size: int) -> Iterator[bytes]:
        seen = hashlib.sha256()
        with reaching(digest):
            file = self._backend.open(digest)
        with file:
            held = b""
            while piece := _read(file, chunk_size, digest):
                seen.update(piece)
                if held:
                    yield held
                held = piece
            _compare(seen.hexdigest(), digest)
            if held:
                yield held

    def fetch(self, digest: str, to: Path) -> None:
        """Copy the blob to the local file `to`, which appears (or is replaced) only if the copy is right.

        Raises:
            BlobMissing, BlobDamaged: `to` is as it was before.
            OSError: `to` cannot be written.
        """
        part = to.with_name(f".{uuid.uuid4().hex}.part")
        pieces = self.chunks(digest)
        try:
            with part.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
            part.replace(to)
        finally:
            part.unlink(missing_ok=True)

    def size(self, digest: str) -> int:
        """The blob's size in bytes. Raises BlobMissing."""
        with reaching(_checked(digest)):
            return self._backend.find(digest).size

    def has(self, digest: str) -> bool:
        """Whether there is such a blob; its content is not checked."""
        try:
            self.size(digest)
        except BlobMissing:
            return False
        return True

    # --- away -----------------------------------------------------------------------------------------

    def delete(self, digest: str, *, unless_modified_since: datetime | None = None) -> bool:
        """Remove the blob, but not if its content was stored (again) since then.

        Returns:
            Whether it was removed by this call; removing an absent blob changes nothing.
        """
        with reaching(_checked(digest)):
            return self._backend.delete(digest, unless_modified_since=unless_modified_since)

    def blobs(self) -> Iterator[Blob]:
        """Every blob, in no order; those stored or removed meanwhile may be among them or not."""
        found = self._backend.blobs()
        while True:
            with reaching():
                blob = next(found, None)
            if blob is None:
                return
            yield blob

    def abandoned_drafts(self, older_than: timedelta) -> list[Path]:
        """The drafts whose writers have not touched them for so long.

        Those of an object store lie in this machine's temporary folder, and only they are looked at.
        """
        limit = time.time() - older_than.total_seconds()
        with reaching():
            drafts = self._backend.draft_folder.glob(f"{_DRAFT}*")
            return [path for path in drafts if _touched(path) < limit]

    def remove_abandoned_drafts(self, older_than: timedelta) -> int:
        """Remove the drafts that `abandoned_drafts` names; how many there were."""
        abandoned = self.abandoned_drafts(older_than)
        with reaching():
            for path in abandoned:
                path.unlink(missing_ok=True)
        return len(abandoned)


def _touched(path: Path) -> float:
    """When the file was last written; one that is gone by now was so a moment ago."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _checked(digest: str) -> str:
    if not is_digest(digest):
        raise ValueError("a digest is 64 lower-case hexadecimal digits")
    return digest


def _compare(found: str, digest: str) -> None:
    if found != digest:
        raise BlobDamaged(f"blob {digest} was changed after it was written")


def _read(file: BinaryIO, size: int, digest: str) -> bytes:
    with reaching(digest):
        return file.read(size)


@contextmanager
def reaching(digest: str | None = None) -> Iterator[None]:
    """Turn what file systems raise, each its own, into BlobMissing (of `digest`) or StoreUnavailable."""
    try:
        yield
    except FileNotFoundError as error:
        if digest is None:
            raise _unavailable(error) from error
        raise BlobMissing(f"the store has no blob {digest}") from None
    except Exception as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the artefact store cannot be used: {type(error).__name__}: {error}")
