"""Processes whose parent died before them, such as the backends of a crashed PostgreSQL.

On Linux a process can ask to become the parent of its descendants' orphans, and so end and reap them; the
first process of a container gets them anyway. Elsewhere the functions do nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt() -> None:
    """Become the parent of every orphan among this process's descendants, from now on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end(keep: Collection[int]) -> None:
    """Kill and reap all children of this process but those in `keep`; what they leave orphaned follows."""
    while found := _children() - set(keep):
        for pid in found:
            os.kill(pid, signal.SIGKILL)  # ours until it is reaped, so the number cannot be another's
            os.waitpid(pid, 0)


def reap(keep: Collection[int]) -> None:
    """Reap children that ended by themselves, but for those in `keep`, whose exit codes are still wanted."""
    if sys.platform == "linux":
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in keep:
                    return
                os.waitpid(ended.si_pid, 0)


def _children() -> set[int]:
    if sys.platform != "linux":
        return set()
    children = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                _, _, after_name = (entry / "stat").read_text(errors="replace").rpartition(") ")
                if int(after_name.split()[1]) == os.getpid():
                    children.add(int(entry.name))
    return children
