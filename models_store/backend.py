"""What a blob store asks of the place its blobs lie in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol


@dataclass(frozen=True)
class Blob:
    """What is known of a stored blob without reading it.

    Attributes:
        digest: The SHA-256 it is stored under.
        size: In bytes.
        modified: When content of this digest was last stored, with time zone.
    """

    digest: str
    size: int
    modified: datetime


class Backend(Protocol):
    """One kind of place. An absent blob is a FileNotFoundError; other errors are whatever it raises."""

    @property
    def draft_folder(self) -> Path:
        """The local folder for blobs that are being written."""

    @property
    def draft_mode(self) -> int:
        """The permissions of a new draft, less the umask."""

    def keep(self, draft: Path, digest: str) -> None:
        """Make the local file the blob of this digest: whole or not at all, durable, and modified now."""

    def open(self, digest: str) -> BinaryIO:
        """The blob's content, to be read from its start to its end."""

    def find(self, digest: str) -> Blob:
        """What is known of the blob."""

    def delete(self, digest: str, *, unless_modified_since: datetime | None) -> bool:
        """Remove the blob, but not if it was stored again since then; whether it was removed."""

    def blobs(self) -> Iterator[Blob]:
        """Every blob that is there from the first step to the last, in any order."""


def is_digest(name: str) -> bool:
    """Whether this is the SHA-256 of something, in lower-case hexadecimal."""
    return len(name) == 64 and all(character in "0123456789abcdef" for character in name)
