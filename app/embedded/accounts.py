"""Which user the servers run as.

PostgreSQL refuses to run as root. A root caller therefore hands its servers to a user ID that nobody has: no
user is added to the system, and the `nobody` account is not used, since other programs run as that too.
"""

from __future__ import annotations

import os
import pwd
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from app.embedded.errors import EmbeddedError

# Listed as unused in https://systemd.io/UIDS-GIDS, and small enough for rootless containers, which map
# 65,536 IDs.
_UNALLOCATED = range(60_706, 61_184)


@dataclass(frozen=True)
class Account:
    """A user and group ID of the system; neither needs a name."""

    uid: int
    gid: int


def account_for(data: Path) -> Account | None:
    """The account a server on `data` runs as: the owner of existing data, else a free one.

    Returns:
        None when the caller is not root: then the servers run as the caller.

    Raises:
        EmbeddedError: The caller is root on a system other than Linux.
    """
    if os.geteuid() != 0:
        return None
    if sys.platform != "linux":
        raise EmbeddedError("As root, the local servers run on Linux only. Start Expunge as a normal user.")
    if data.exists() and (owner := data.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    return _free_account()


def named_account() -> Account | None:
    """An unprivileged account with a name, on which `initdb` insists; None when the caller is not root.

    Raises:
        EmbeddedError: The system has no such account.
    """
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedError("The system has no user `nobody`. Start Expunge as a normal user.") from None
    return Account(nobody.pw_uid, nobody.pw_gid)


def may_read(account: Account, path: Path) -> bool:
    """Whether the permission bits let `account` read the file or list the folder, through all its parents."""
    real = path.resolve()
    wanted = 0o5 if real.is_dir() else 0o4
    return _allows(real, account, wanted) and all(_allows(parent, account, 0o1) for parent in real.parents)


def give(path: Path, account: Account) -> None:
    """Make `account` the owner of a whole tree.

    Raises:
        EmbeddedError: The system does not let this process do so.
    """
    try:
        for folder, _, files in os.walk(path):
            for entry in (folder, *(str(Path(folder, name)) for name in files)):
                os.chown(entry, account.uid, account.gid, follow_symlinks=False)
    except OSError as error:
        message = (
            f"Cannot hand {path} to user ID {account.uid}: {error.strerror}. Start Expunge as a normal user."
        )
        raise EmbeddedError(message) from error


def _free_account() -> Account:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    uid = secrets.choice([uid for uid in _UNALLOCATED if uid not in taken])
    return Account(uid, uid)


def _allows(path: Path, account: Account, wanted: int) -> bool:
    found = path.stat()
    if found.st_uid == account.uid:
        granted = found.st_mode >> 6
    elif found.st_gid == account.gid:
        granted = found.st_mode >> 3
    else:
        granted = found.st_mode
    return granted & wanted == wanted
