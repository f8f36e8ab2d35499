"""Starting, restarting and stopping several programs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.embedded import Part, PartFailed, Supervisor
from app.embedded.processes import Program


class _Enough(Exception):
    """The test has seen what it wanted."""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, str], Program]:
    """A function that makes a program of a shell script; its log is named for it."""

    def make(name: str, text: str) -> Program:
        return Program(
            name=name,
            arguments=("/bin/sh", "-c", text),
            log=tmp_path / f"{name}.log",
            folder=tmp_path,
            environment={},
        )

    return make


def _until(condition: Callable[[], bool]) -> Callable[[float], None]:
    """A pause that breaks off when the condition holds, and gives up after 10 seconds."""
    deadline = time.monotonic() + 10

    def pause(seconds: float) -> None:
        time.sleep(min(seconds, 0.02))
        if condition():
            raise _Enough
        assert time.monotonic() < deadline

    return pause


def test_parts_stop_in_reverse_order(script: Callable[[str, str], Program], tmp_path: Path) -> None:
    """What started last stops first, and each has ended before the next is told."""
    order = tmp_path / "order"
    text = "trap 'sleep 0.1; echo {0} >> order; exit' TERM; touch {0}; while :; do sleep 0.02; done"
    with Supervisor() as supervisor:
        for name in ("postgres", "worker", "api"):
            ready = tmp_path / name
            supervisor.start(Part(program=script(name, text.format(name)), is_ready=ready.exists))
    assert order.read_text().split() == ["api", "worker", "postgres"]


def test_a_part_that_dies_is_restarted(script: Callable[[str, str], Program], tmp_path: Path) -> None:
    """The first run ends, the second stays, and what must precede a start precedes both."""
    runs = tmp_path / "runs"
    prepared: list[int] = []
    program = script("worker", "echo run >> runs; test $(wc -l < runs) -ge 2 && exec sleep 60")
    second = _until(lambda: runs.exists() and runs.read_text().count("run") == 2)
    with Supervisor(second, first_delay=0.01) as supervisor:
        supervisor.start(Part(program=program, before_start=lambda: prepared.append(1)))
        with pytest.raises(_Enough):
            supervisor.watch()
    assert len(prepared) == 2


def test_the_others_go_on_meanwhile(script: Callable[[str, str], Program], tmp_path: Path) -> None:
    """A part that waits for its restart does not take the rest down."""
    steady = tmp_path / "steady.pid"
    runs = tmp_path / "runs"
    third = _until(lambda: runs.exists() and runs.read_text().count("run") == 3)
    with Supervisor(third, first_delay=0.01) as supervisor:
        supervisor.start(Part(program=script("steady", "echo $$ > steady.pid; exec sleep 60")))
        supervisor.start(Part(program=script("worker", "echo run >> runs")))
        with pytest.raises(_Enough):
            supervisor.watch()
        os.kill(int(steady.read_text()), 0)


def test_one_that_never_works_ends_it_all(script: Callable[[str, str], Program]) -> None:
    """After several deaths right after the start, the error says which part and shows the end of its log."""
    with Supervisor(first_delay=0.001) as supervisor:
        supervisor.start(Part(program=script("worker", "echo no such module; exit 4")))
        with pytest.raises(PartFailed, match=r"worker died 5 times .*exit code 4.*(?s:.)*no such module"):
            supervisor.watch()


def test_a_start_that_fails_is_not_repeated(script: Callable[[str, str], Program], tmp_path: Path) -> None:
    """A part that ends before it is ready is an error at once."""
    with (
        Supervisor() as supervisor,
        pytest.raises(PartFailed, match=r"api did not start \(exit code 4\)(?s:.)*taken"),
    ):
        supervisor.start(
            Part(program=script("api", "echo run >> runs; echo taken; exit 4"), is_ready=lambda: False)
        )
    assert (tmp_path / "runs").read_text() == "run\n"


def test_one_that_is_never_ready_is_given_up(script: Callable[[str, str], Program]) -> None:
    """The wait for readiness is bounded."""
    with Supervisor() as supervisor, pytest.raises(PartFailed, match="not ready within 0 s"):
        supervisor.start(Part(program=script("api", "sleep 60"), is_ready=lambda: False, ready_seconds=0.1))


def test_a_task_runs_to_its_end(script: Callable[[str, str], Program], tmp_path: Path) -> None:
    """`finish` returns when the program has succeeded, and raises when it failed."""
    with Supervisor() as supervisor:
        supervisor.finish(script("migrate", "sleep 0.1; touch done"))
        assert (tmp_path / "done").exists()
        with pytest.raises(PartFailed, match=r"migrate failed \(killed by SIGTERM\)"):
            supervisor.finish(script("migrate", "kill -TERM $$"))


def test_strays_do_not_outlive_their_part(
    survivors: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    """A process that a part left in another session ends with the part, or at the latest at the stop."""
    program = Path(__file__).with_name("programs") / "adopting.py"
    result = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
    assert survivors([str(tmp_path)]) == []
