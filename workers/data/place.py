"""The folder or file that a data set lies in, here or in an object store; nothing leads out of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import fsspec

from workers.data.reader import DataMissing
from workers.data.walk import is_hidden, walk

LARGEST_IMAGE = 64 * 1024 * 1024  # bytes of an encoded image
_DESCRIPTORS = Path("/proc/self/fd")
_TELLS_DESCRIPTORS = _DESCRIPTORS.is_dir()
_REGULAR_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # never waits for a pipe's writer
_TRANSFERS = 16  # objects that are fetched at once
_BLOCK_BYTES = 4 * 1024 * 1024


class Place(Protocol):
    """Paths are relative to the location and separated by `/`; the empty path is the location itself."""

    def is_folder(self) -> bool:
        """Whether there are files below the location."""

    def has(self, path: str = "") -> bool:
        """Whether this is a file that can be read."""

    def names(self, suffix: str) -> list[str]:
        """The names directly in the location, which is a folder, that end so, in their order."""

    def files(self, suffixes: frozenset[str]) -> Iterator[str]:
        """Every file below the location, a folder, with one of these suffixes, in the order of the bytes.

        Suffixes are compared in lower case. What begins with a dot is left out, folder or file. A link counts
        as what it leads to inside the location; one with a wanted suffix that leads out of it, or nowhere, is
        named too, and cannot be read. Raises DataFault.
        """

    def open(self, path: str = "") -> BinaryIO:
        """A file to read from and seek in. Raises DataMissing: it is no regular file inside the location."""

    def images(self, paths: Sequence[str]) -> Iterator[bytes]:
        """The content of each file; nothing where it cannot be read or has more than LARGEST_IMAGE bytes.

        Raises DataMissing: the place itself cannot be reached.
        """


def place(location: str) -> Place:
    """The place at this path or URL, which was found to be allowed when it was registered."""
    return ObjectPlace(location) if "://" in location else LocalPlace(location)


class LocalPlace:
    """A folder or file of this machine.

    The location is a real path, as it was when it was found to be inside the operator's roots. If a link lies
    on it now, there is nothing.
    """

    def __init__(self, location: str) -> None:
        self._root = os.path.abspath(location)  # noqa: PTH100 - nothing is resolved
        self._below = self._root.rstrip("/") + "/"

    def is_folder(self) -> bool:
        return os.path.realpath(self._root) == self._root and Path(self._root).is_dir()

    def has(self, path: str = "") -> bool:
        try:
            self.open(path).close()
        except DataMissing:
            return False
        return True

    def names(self, suffix: str) -> list[str]:
        return sorted(path.name for path in Path(self._root).iterdir() if path.name.endswith(suffix))

    def files(self, suffixes: frozenset[str]) -> Iterator[str]:
        return walk(self._root, suffixes)

    def open(self, path: str = "") -> BinaryIO:
        return os.fdopen(self._descriptor(path), "rb")

    def image(self, path: str) -> bytes:
        """The content of one file, as in `images`."""
        try:
            descriptor = self._descriptor(path)
        except DataMissing:
            return b""
        try:
            size = os.fstat(descriptor).st_size
            content = os.read(descriptor, size) if size <= LARGEST_IMAGE else b""
        except OSError:
            content = b""
        finally:
            os.close(descriptor)
        return content

    def images(self, paths: Sequence[str]) -> Iterator[bytes]:
        return map(self.image, paths)

    def _descriptor(self, path: str) -> int:
        """Open a regular file inside the location.

        Where it lies is judged by what was opened, not by its name before: no link that is put in the way
        meanwhile leads out.
        """
        full = os.path.join(self._root, path) if path else self._root  # noqa: PTH118 - called for each row
        try:
            if not stat.S_ISREG(os.stat(full).st_mode):  # noqa: PTH116
                raise _missing()
            descriptor = os.open(full, _REGULAR_ONLY)
        except (OSError, ValueError):
            raise _missing() from None
        if not self._is_inside(descriptor, full) or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _missing()
        return descriptor

    def _is_inside(self, descriptor: int, path: str) -> bool:
        # Where the system does not tell what was opened, the path is looked at once more.
        opened = f"{_DESCRIPTORS}/{descriptor}"
        real = os.readlink(opened) if _TELLS_DESCRIPTORS else os.path.realpath(path)  # noqa: PTH115
        return real == self._root or real.startswith(self._below)


class ObjectPlace:
    """Objects under a URL. Object stores have neither links nor `..`, so a name below it is inside it."""

    def __init__(self, location: str) -> None:
        try:
            self._fs: Any
            self._fs, root = fsspec.core.url_to_fs(location, use_listings_cache=False)
        except Exception as fault:
            raise _unreachable(fault) from fault
        self._root = root.rstrip("/")

    def is_folder(self) -> bool:
        return bool(self._asked("isdir", self._root))

    def has(self, path: str = "") -> bool:
        return bool(self._asked("isfile", self._full(path)))

    def names(self, suffix: str) -> list[str]:
        found = self._asked("ls", self._root, detail=False)
        return sorted(name for name in (path.rpartition("/")[2] for path in found) if name.endswith(suffix))

    def files(self, suffixes: frozenset[str]) -> Iterator[str]:
        found = self._asked("find", self._root)
        paths = (path.removeprefix(self._root).lstrip("/") for path in found)
        shown = (path for path in paths if not is_hidden(path) and path.lower().endswith(tuple(suffixes)))
        return iter(sorted(shown, key=os.fsencode))

    def open(self, path: str = "") -> BinaryIO:
        file: BinaryIO = self._asked("open", self._full(path), "rb", block_size=_BLOCK_BYTES)
        return file

    def images(self, paths: Sequence[str]) -> Iterator[bytes]:
        with ThreadPoolExecutor(_TRANSFERS) as pool:
            for start in range(0, len(paths), _TRANSFERS):
                yield from pool.map(self._image, paths[start : start + _TRANSFERS])

    def _image(self, path: str) -> bytes:
        try:
            with self._fs.open(self._full(path), "rb", cache_type="none") as file:
                content: bytes = file.read() if file.size <= LARGEST_IMAGE else b""
        except (FileNotFoundError, IsADirectoryError, DataMissing):
            return b""
        except Exception as fault:
            raise _unreachable(fault) from fault
        return content

    def _full(self, path: str) -> str:
        if path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")[:-1]):
            raise _missing()
        return f"{self._root}/{path}" if path else self._root

    def _asked(self, method: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
        """Call the file system, whose libraries raise what they like when they cannot reach the store."""
        try:
            return getattr(self._fs, method)(*arguments, **options)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise _missing() from None
        except Exception as fault:
            raise _unreachable(fault) from fault


def _missing() -> DataMissing:
    return DataMissing("there is no such file at the location")


def _unreachable(fault: Exception) -> DataMissing:
    return DataMissing(f"the data set's location cannot be reached ({type(fault).__name__})")
