"""What a killed PostgreSQL leaves behind: a PID file whose number may by now be anybody's."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

from app.embedded.errors import EmbeddedError

_LEAVING_SECONDS = 120.0


def clear(data: Path) -> None:
    """Make the data folder free for a new server.

    The server of a killed supervisor may still be shutting down: it is told again to stop, and waited for. A
    PID file that names some other living process is removed, since PostgreSQL would refuse to start while
    that lives. One that names no process is left to PostgreSQL, which checks shared memory too; so is
    everything on systems without /proc, where nothing could be proved.

    Raises:
        EmbeddedError: The old server does not end.
    """
    pid = _recorded(data / "postmaster.pid")
    if pid is None or sys.platform != "linux":
        return
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)  # from here on the number cannot change its meaning
        try:
            if _serves(pid, data):
                _end(handle, pid)
            else:
                (data / "postmaster.pid").unlink(missing_ok=True)
        finally:
            os.close(handle)


def _recorded(file: Path) -> int | None:
    with suppress(FileNotFoundError):
        first, _, _ = file.read_text(errors="replace").partition("\n")
        return int(first) if first.strip().isdecimal() else None
    return None


def _serves(pid: int, data: Path) -> bool:
    """Whether the process is a PostgreSQL server that works in `data`."""
    process = Path("/proc", str(pid))
    with suppress(OSError):
        return (process / "cwd").samefile(data) and (process / "exe").readlink().name.startswith("postgres")
    return False


def _end(handle: int, pid: int) -> None:
    signal.pidfd_send_signal(handle, signal.SIGINT)
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    if not ended.poll(_LEAVING_SECONDS * 1000):
        raise EmbeddedError(f"The PostgreSQL server of an earlier run (process {pid}) does not stop.")
