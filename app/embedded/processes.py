"""One child process: how it is started, watched and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from app.embedded.accounts import Account

LAUNCHER = Path(__file__).with_name("launcher.py")
_LARGEST_LOG = 16 * 1024 * 1024
_TAIL_BYTES = 4096
_TAIL_LINES = 15


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run, and how to end it.

    Attributes:
        name: What people call it, in messages and logs.
        arguments: The command; the first is an absolute path.
        log: The file that receives stdout and stderr.
        folder: The working directory, entered before privileges are dropped.
        environment: The whole environment.
        account: The user to run as, None for the caller's.
        inherited: Open file descriptors that the program keeps.
        stop_signals: Signals to send one after the other, each with the seconds to wait; then SIGKILL.
        death_signal: What the program receives when the caller dies.
    """

    name: str
    arguments: tuple[str, ...]
    log: Path
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    account: Account | None = None
    inherited: tuple[int, ...] = ()
    stop_signals: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGTERM, 10.0),)
    death_signal: signal.Signals = signal.SIGKILL

    def log_tail(self) -> str:
        """The last lines of the log, for an error message."""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])


class Process:
    """A running program in a session of its own, which dies with the calling thread.

    Start it from the main thread: Linux sends the death signal when the *thread* that started the child ends.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._started = time.monotonic()
        self._lifeline: int | None = None
        self._child = self._spawn()

    @property
    def pid(self) -> int:
        """Its process ID, which is also that of its session and process group."""
        return self._child.pid

    @property
    def age(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._child.poll()

    def stop(self) -> bool:
        """Stop it in bounded time; returns whether it ended by itself, without SIGKILL."""
        try:
            return self._stopped_by_signals() or self._killed()
        finally:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None

    def _stopped_by_signals(self) -> bool:
        for number, seconds in self.program.stop_signals:
            self._child.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
                return True
        return False

    def _killed(self) -> bool:
        # The leader is not reaped yet, so the number cannot belong to another group.
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        return False

    def _spawn(self) -> subprocess.Popen[bytes]:
        program = self.program
        parent, inherited = str(os.getpid()), program.inherited
        if sys.platform != "linux":
            watched, self._lifeline = os.pipe()
            parent, inherited = f"fd:{watched}", (*inherited, watched)
        account = f"{program.account.uid}:{program.account.gid}" if program.account else ""
        launcher = (
            sys.executable,
            "-I",
            "-S",
            str(LAUNCHER),
            parent,
            str(int(program.death_signal)),
            account,
        )
        with _opened_log(program.log) as log:
            child = subprocess.Popen(  # noqa: S603 - never built from a request
                (*launcher, *program.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=program.folder,
                env=program.environment,
                pass_fds=inherited,
                start_new_session=True,
            )
        for descriptor in set(inherited) - set(program.inherited):
            os.close(descriptor)
        return child


def _opened_log(path: Path) -> BinaryIO:
    """Append to the log; one older file is kept beside it, so that restarts cannot fill the disk."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LARGEST_LOG:
        path.replace(path.with_name(path.name + ".1"))
    return path.open("ab")


def describe_exit(code: int) -> str:
    """An exit code in words."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
