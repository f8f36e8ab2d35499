"""Private folders: short ones for sockets, and a lock so that one folder has one user."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.embedded.accounts import Account
from app.embedded.errors import AlreadyRunning, EmbeddedError

# The address of a Unix socket holds 104 bytes on macOS and 108 on Linux, the names of the sockets included.
_LONGEST_FOLDER = 80


def create_private(folder: Path) -> Path:
    """Create the folder for its owner alone, or leave it as it is; returns its absolute path.

    Raises:
        EmbeddedError: The folder cannot be created.
    """
    path = folder.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EmbeddedError(f"Cannot create the folder {path}: {error.strerror}.") from error
    return path


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock file for the length of the block; the kernel frees it however the process ends.

    Raises:
        AlreadyRunning: Another process holds it; the message is `refusal`.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(refusal) from None
        yield


@contextmanager
def socket_folder(link: Path, account: Account | None) -> Iterator[Path]:
    """A fresh private folder with a short, unguessable path, removed at the end of the block.

    `link` becomes a symbolic link to it, so that people find it, and so that the next start clears away what
    a killed process left.
    """
    _remove_linked(link)
    folder = _new_folder(account)
    link.symlink_to(folder)
    try:
        yield folder
    finally:
        _remove_linked(link)


def _remove_linked(link: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(link.readlink(), ignore_errors=True)
        link.unlink()


def _new_folder(account: Account | None) -> Path:
    for parent in _parents():
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="expunge-", dir=parent))
            if account is not None:
                os.chown(folder, account.uid, account.gid)
            return folder
    raise EmbeddedError(
        "No folder for Unix sockets: none of " + ", ".join(_parents()) + " can be written to."
    )


def _parents() -> list[str]:
    # /run is kept clear of the cleaners that empty /tmp of old files, but only root may write to it.
    candidates = ["/run"] if os.geteuid() == 0 else [os.environ.get("XDG_RUNTIME_DIR", "")]
    candidates += ["/tmp", tempfile.gettempdir()]  # noqa: S108 - mkdtemp makes the name there
    return [
        path for path in candidates if path.startswith("/") and len(path.encode()) <= _LONGEST_FOLDER - 17
    ]
