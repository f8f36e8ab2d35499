"""One child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.embedded.processes import LAUNCHER, Process, Program

_SHELL = "/bin/sh"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """A function that runs a shell script as a child and waits for its first line."""
    running: list[Process] = []

    def start(script: str, *stop_signals: tuple[signal.Signals, float]) -> Process:
        program = Program(
            name="script",
            arguments=(_SHELL, "-c", script),
            log=tmp_path / f"{len(running)}.log",
            folder=tmp_path,
            environment={},
            stop_signals=stop_signals,
        )
        running.append(Process(program))
        while not program.log.stat().st_size:
            time.sleep(0.01)
        return running[-1]

    yield start
    for process in running:
        process.stop()


def test_it_leads_a_session_of_its_own(shell: Callable[..., Process]) -> None:
    """Ctrl-C on the terminal reaches the supervisor alone."""
    process = shell("echo ready; sleep 60")
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_it_stops_by_its_own_signal(shell: Callable[..., Process]) -> None:
    """The program's stop signal comes first, so it may end in its own way."""
    process = shell(
        "trap 'echo bye; exit 3' INT; echo ready; while :; do sleep 0.05; done",
        (signal.SIGINT, 5.0),
    )
    assert process.stop()
    assert process.exit_code() == 3
    assert process.program.log_tail().endswith("bye")


def test_a_deaf_one_is_killed_with_its_group(
    shell: Callable[..., Process], survivors: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    """SIGKILL follows in bounded time and takes the children along."""
    process = shell("trap '' TERM; echo ready; sleep 60 & sleep 60; wait", (signal.SIGTERM, 0.1))
    assert not process.stop()
    assert process.exit_code() == -signal.SIGKILL
    assert survivors([str(tmp_path)]) == []


def test_an_ignored_interrupt_is_not_inherited(shell: Callable[..., Process]) -> None:
    """A supervisor started in the background of a shell ignores SIGINT; its children do not."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = shell("echo ready; exec sleep 60", (signal.SIGINT, 5.0))
        assert process.stop()
        assert process.exit_code() == -signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, earlier)


def test_the_log_keeps_one_older_file(shell: Callable[..., Process], tmp_path: Path) -> None:
    """A log that has grown large is set aside at the next start."""
    log = tmp_path / "0.log"
    log.write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    shell("echo ready")
    assert (tmp_path / "0.log.1").stat().st_size > 16 * 1024 * 1024
    assert log.read_text() in {"", "ready\n"}


def test_without_a_death_signal_a_watcher_ends_it(
    survivors: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    """Where the kernel has no death signal, the launcher stays and stops the program when the pipe closes."""
    watched, held = os.pipe()
    script = "echo ready; sleep 60 & wait"
    launcher = (sys.executable, str(LAUNCHER), f"fd:{watched}", str(int(signal.SIGTERM)), "")
    with subprocess.Popen(
        (*launcher, _SHELL, "-c", script), cwd=tmp_path, pass_fds=[watched], start_new_session=True, stdout=-1
    ) as process:
        os.close(watched)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.close(held)
        assert process.wait(timeout=10) == -signal.SIGKILL
    assert survivors([str(tmp_path)]) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_watcher_passes_signals_on(number: signal.Signals, tmp_path: Path) -> None:
    """The program behind the watcher gets the supervisor's stop signal, and its exit code comes back."""
    watched, held = os.pipe()
    script = f"trap 'exit 5' {number.name.removeprefix('SIG')}; echo ready; while :; do sleep 0.05; done"
    launcher = (sys.executable, str(LAUNCHER), f"fd:{watched}", str(int(signal.SIGTERM)), "")
    with subprocess.Popen(
        (*launcher, _SHELL, "-c", script), pass_fds=[watched], start_new_session=True, stdout=-1
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(timeout=10) == 5
    os.close(watched)
    os.close(held)
