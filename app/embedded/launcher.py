"""Start one program that cannot outlive the process that asked for it.

Run by path, in a fresh interpreter: what must happen between fork and exec is done here, where no other
thread can hold a lock. Standard library only, so that it starts in milliseconds.

    launcher.py PARENT DEATH_SIGNAL UID:GID PROGRAM ARGUMENT...

PARENT is the process ID of the caller, or `fd:N` for a pipe that the caller holds open; UID:GID may be empty.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 10.0


def main(parent: str, death_signal: str, account: str, *command: str) -> int:
    """Drop privileges, tie the process to its parent, and become the program."""
    _reset_signals()
    if account:
        _become(*(int(part) for part in account.split(":")))
    if parent.startswith("fd:"):
        return _watch(int(parent.removeprefix("fd:")), int(death_signal), command)
    _die_with(int(parent), int(death_signal))
    return os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _reset_signals() -> None:
    """A background job of a shell inherits an ignored SIGINT, and Python itself ignores SIGPIPE."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGPIPE,
        signal.SIGXFSZ,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _die_with(parent: int, death_signal: int) -> None:
    """Ask the kernel for the signal. A change of the user ID would cancel it, so this comes after that."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before the wish was known
        sys.exit(1)


def _watch(pipe: int, death_signal: int, command: tuple[str, ...]) -> int:
    """Where the kernel has no such signal: stay beside the program and end its group when the pipe closes."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    received: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, lambda got, _frame: received.append(got))
    with subprocess.Popen(command) as program:  # noqa: S603 - the caller's own command
        while program.poll() is None:
            readable, _, _ = select.select([pipe, wake], [], [])
            if wake in readable:
                os.read(wake, 512)
            while received:
                program.send_signal(received.pop(0))
            if pipe in readable:
                _end_group(program, death_signal)
        return program.returncode


def _end_group(program: subprocess.Popen[bytes], death_signal: int) -> None:
    """The parent is gone: the program may end in its own way, then its whole group goes, this process too."""
    program.send_signal(death_signal)
    deadline = time.monotonic() + _GRACE_SECONDS
    while program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    if code < 0:  # the caller shall see what ended the program
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
