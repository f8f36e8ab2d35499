"""Private folders: short ones for sockets, and a lock so that one folder has one user."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.embedded.accounts import Account, give
from app.embedded.errors import AlreadyRunning, EmbeddedError

# The address of a Unix socket holds 104 bytes on macOS and 108 on Linux; 31 are added to the folder above.
_LONGEST_PARENT = 70
_OWNER = "owner"


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
        EmbeddedError: The file cannot be written.
    """
    try:
        file = path.open("a")
    except OSError as error:
        raise EmbeddedError(f"Cannot write to {path}: {error.strerror}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(refusal) from None
        yield


@contextmanager
def socket_folder(link: Path, account: Account | None) -> Iterator[Path]:
    """A fresh private folder with a short, unguessable path, removed at the end of the block.

    `link` becomes a symbolic link to it, for people, and for the next start, which clears away what a killed
    process left. The folder names `link` in turn: a copied link does not entitle to remove it.
    """
    _remove_linked(link)
    folder = Path(tempfile.mkdtemp(prefix="expunge-", dir=_short_parent()))
    (folder / _OWNER).symlink_to(link)
    if account is not None:
        give(folder, account)
    link.symlink_to(folder)
    try:
        yield folder
    finally:
        _remove_linked(link)


def _remove_linked(link: Path) -> None:
    with suppress(FileNotFoundError):
        folder = link.readlink()
        link.unlink()
        if (folder / _OWNER).readlink() == link:
            shutil.rmtree(folder, ignore_errors=True)


def _short_parent() -> str:
    # /run is spared by the cleaners that empty /tmp of old files, but only root may write to it. A user's
    # XDG_RUNTIME_DIR goes when the user logs out, while the instance may stay.
    candidates = ["/run", "/tmp", tempfile.gettempdir()]  # noqa: S108 - mkdtemp makes a private folder there
    for parent in candidates if os.geteuid() == 0 else candidates[1:]:
        if len(parent.encode()) <= _LONGEST_PARENT and os.access(parent, os.W_OK | os.X_OK):
            return parent
    raise EmbeddedError(f"No folder for Unix sockets: {' and '.join(candidates)} cannot be used.")
