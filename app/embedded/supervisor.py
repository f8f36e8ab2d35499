"""Starts programs in order, restarts those that die, and stops all of them in reverse order."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self

import structlog

from app.embedded import orphans
from app.embedded.errors import PartFailed
from app.embedded.processes import Process, Program, describe_exit

_log = structlog.get_logger(__name__)

_POLL_SECONDS = 0.05
_WATCH_SECONDS = 0.25
_LONGEST_DELAY_SECONDS = 30.0
# A part that ended sooner than this after its start never really worked.
_SETTLED_SECONDS = 10.0
_MOST_FAILURES = 5


def _nothing() -> None:
    """Nothing has to be done before the start."""


def _at_once() -> bool:
    """Ready as soon as it runs."""
    return True


@dataclass(frozen=True, kw_only=True)
class Part:
    """One program of a service, and how to tell that it works.

    Attributes:
        program: What to run.
        url: Where others reach it, if they do.
        before_start: Called before every start, restarts included.
        is_ready: Asked until it says yes; answers quickly.
        ready_seconds: How long it may take to say so.
    """

    program: Program
    url: str = ""
    before_start: Callable[[], None] = _nothing
    is_ready: Callable[[], bool] = _at_once
    ready_seconds: float = 60.0


@dataclass
class _Running:
    part: Part
    process: Process
    failures: int = 0
    restart_at: float | None = None


class Supervisor:
    """Owns running parts; leaving the `with` block stops them, the last started first.

    Use it from the main thread (see `Process`).

    Args:
        pause: Called with seconds wherever the supervisor waits; raises to break off.
        adopts: Also end the orphans of parts. Only for a process that starts no children in other ways.
        first_delay: Seconds before a part's first restart; doubled for each further failure.
    """

    def __init__(
        self, pause: Callable[[float], None] = time.sleep, *, adopts: bool = False, first_delay: float = 0.5
    ) -> None:
        self._pause = pause
        self._adopts = adopts
        self._first_delay = first_delay
        self._running: list[_Running] = []
        self._stopping = ExitStack()

    def __enter__(self) -> Self:
        if self._adopts:
            orphans.adopt()
            self._stopping.callback(orphans.end, keep=())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.close()

    def start(self, part: Part) -> None:
        """Start a part, wait until it is ready, and look after it from then on.

        Raises:
            PartFailed: It ended, or was not ready in time; the message ends with its log.
        """
        running = self._begin(part)
        while not part.is_ready():
            self._refuse_failure(running)
            self._pause(_POLL_SECONDS)
        self._running.append(running)
        _log.info("part_started", part=part.program.name, pid=running.process.pid)

    def finish(self, program: Program) -> None:
        """Run a program to its end.

        Raises:
            PartFailed: It failed; the message ends with its log.
        """
        process = self._begin(Part(program=program)).process
        while (code := process.exit_code()) is None:
            self._pause(_POLL_SECONDS)
        if code != 0:
            _fail(program, f"failed ({describe_exit(code)})")

    def watch(self) -> NoReturn:
        """Restart parts that die, until `pause` raises.

        Raises:
            PartFailed: A part died again and again right after its start; the message ends with its log.
        """
        while True:
            self.tend(_WATCH_SECONDS)

    def tend(self, seconds: float) -> None:
        """Pause, then restart parts that have died; for callers with something else to do in between.

        Raises:
            PartFailed: As `watch`.
        """
        self._pause(seconds)
        for running in self._running:
            self._look_after(running)
        if self._adopts:
            orphans.reap(keep=self._pids())

    def _begin(self, part: Part) -> _Running:
        part.before_start()
        running = _Running(part, Process(part.program))
        self._stopping.callback(_stop, running)
        return running

    def _refuse_failure(self, running: _Running) -> None:
        code = running.process.exit_code()
        if code is not None:
            _fail(running.part.program, f"did not start ({describe_exit(code)})")
        if running.process.age > running.part.ready_seconds:
            _fail(running.part.program, f"was not ready within {running.part.ready_seconds:.0f} s")

    def _look_after(self, running: _Running) -> None:
        code = running.process.exit_code()
        if code is None:
            return
        if running.restart_at is None:
            self._plan_restart(running, code)
        elif time.monotonic() >= running.restart_at:
            running.part.before_start()
            running.process = Process(running.part.program)
            running.restart_at = None
            _log.warning("part_restarted", part=running.part.program.name, pid=running.process.pid)

    def _plan_restart(self, running: _Running, code: int) -> None:
        program = running.part.program
        settled = running.process.age >= _SETTLED_SECONDS
        running.failures = 1 if settled else running.failures + 1
        running.process.stop()
        if self._adopts:
            orphans.end(keep=self._pids())
        if running.failures >= _MOST_FAILURES:
            _fail(program, f"died {running.failures} times right after its start ({describe_exit(code)})")
        delay = min(self._first_delay * 2 ** (running.failures - 1), _LONGEST_DELAY_SECONDS)
        running.restart_at = time.monotonic() + delay
        _log.warning("part_died", part=program.name, cause=describe_exit(code), restart_in_seconds=delay)

    def _pids(self) -> list[int]:
        return [running.process.pid for running in self._running]


def _stop(running: _Running) -> None:
    name = running.part.program.name
    ended_before = running.process.exit_code() is not None
    if not running.process.stop():
        _log.warning("part_killed", part=name)
    elif not ended_before:
        _log.info("part_stopped", part=name)


def _fail(program: Program, what: str) -> NoReturn:
    raise PartFailed(f"{program.name} {what}. The end of {program.log}:\n{program.log_tail()}")
