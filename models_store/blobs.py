"""Content-addressed blobs on any fsspec URL: named by their SHA-256, written once, checked on every read."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec


class BlobMissing(Exception):
    """No blob has this digest."""


class BlobDamaged(Exception):
    """The blob's content does not have the digest it is stored under."""


@dataclass(frozen=True)
class BlobStore:
    """The store under `url`: a local folder path or any URL that fsspec knows (s3://…, gs://…, memory://…)."""

    url: str
    _fs: Any = field(init=False, repr=False, compare=False)
    _root: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fs, root = fsspec.core.url_to_fs(self.url)
        object.__setattr__(self, "_fs", fs)
        object.__setattr__(self, "_root", root.rstrip("/"))

    def put(self, content: bytes) -> str:
        """Store `content` and return its digest; storing the same content again changes nothing.

        The blob is written beside its place and moved into it, so a crash never leaves half a blob
        under a digest.
        """
        digest = hashlib.sha256(content).hexdigest()
        place = self._path(digest)
        if not self._fs.exists(place):
            self._fs.makedirs(str(Path(place).parent), exist_ok=True)
            draft = f"{self._root}/drafts/{uuid.uuid4().hex}"
            self._fs.makedirs(f"{self._root}/drafts", exist_ok=True)
            self._fs.pipe_file(draft, content)
            self._fs.mv(draft, place)
        return digest

    def get(self, digest: str) -> bytes:
        """The blob's content. Raises BlobMissing or BlobDamaged."""
        try:
            content: bytes = self._fs.cat_file(self._path(digest))
        except FileNotFoundError:
            raise BlobMissing(f"the store has no blob {digest}") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise BlobDamaged(f"blob {digest} was changed after it was written")
        return content

    def has(self, digest: str) -> bool:
        return bool(self._fs.exists(self._path(digest)))

    def delete(self, digest: str) -> None:
        """Remove the blob; removing an absent one changes nothing."""
        if self.has(digest):
            self._fs.rm_file(self._path(digest))

    def _path(self, digest: str) -> str:
        if len(digest) != 64 or not all(c in "0123456789abcdef" for c in digest):
            raise ValueError("a digest is 64 lower-case hexadecimal digits")
        return f"{self._root}/{digest[:2]}/{digest}"
