"""Named files of JSON lines beside the blobs: what must survive the loss of the database."""

from __future__ import annotations

import gzip
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from models_store.blobs import reaching
from models_store.folder import flush

_SUFFIX = ".jsonl.gz"


@dataclass(frozen=True)
class Journal:
    """The files below `journal` in the store at `url`; each is written whole or not at all.

    Every method may raise StoreUnavailable.
    """

    url: str
    _fs: Any = field(init=False, repr=False, compare=False)
    _root: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        with reaching():
            file_system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        object.__setattr__(self, "_fs", file_system)
        object.__setattr__(self, "_root", f"{root.rstrip('/')}/journal")

    def write(self, name: uuid.UUID, lines: Iterable[bytes]) -> None:
        """Put these lines, none of which holds a newline, in the place of whatever has this name."""
        with reaching():
            draft = self._draft_folder() / f".{uuid.uuid4().hex}"
        try:
            self._write(draft, lines)
            with reaching():
                self._keep(draft, self._path(name))
        finally:
            draft.unlink(missing_ok=True)

    def read(self, name: uuid.UUID) -> Iterator[bytes]:
        """The lines; there must be such a file."""
        with reaching(), self._fs.open(self._path(name), "rb") as stored, gzip.open(stored, "rb") as file:
            for line in file:
                yield line.rstrip(b"\n")

    def remove(self, name: uuid.UUID) -> None:
        """Remove the file; removing an absent one changes nothing."""
        with reaching():
            if self._fs.exists(self._path(name)):
                self._fs.rm_file(self._path(name))

    def names(self) -> set[uuid.UUID]:
        """The names of all files."""
        with reaching():
            paths = self._fs.ls(self._root, detail=False) if self._fs.exists(self._root) else []
        found = (path.rsplit("/", 1)[-1] for path in paths)
        return {uuid.UUID(file.removesuffix(_SUFFIX)) for file in found if file.endswith(_SUFFIX)}

    def _path(self, name: uuid.UUID) -> str:
        return f"{self._root}/{name}{_SUFFIX}"

    @staticmethod
    def _write(draft: Path, lines: Iterable[bytes]) -> None:
        with draft.open("xb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) as file:
            for line in lines:  # what making them raises is not the store's fault
                with reaching():
                    file.write(line + b"\n")

    def _keep(self, draft: Path, place: str) -> None:
        """Put the draft into its place, for good."""
        if not self._is_local:
            self._fs.put_file(str(draft), place)
            return
        flush(draft)
        draft.replace(place)
        flush(Path(self._root))

    @property
    def _is_local(self) -> bool:
        return isinstance(self._fs, LocalFileSystem)

    def _draft_folder(self) -> Path:
        """Beside its place, where a rename puts it there; for an object store anywhere."""
        if not self._is_local:
            return Path(tempfile.gettempdir())
        folder = Path(self._root)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
