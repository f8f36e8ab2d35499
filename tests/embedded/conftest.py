"""Instances of the supervisor as real processes, and a look at what they leave behind."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_INSTANCE = Path(__file__).with_name("programs") / "instance.py"


@dataclass
class Instance:
    """A running `instance.py`.

    Attributes:
        ready: What it printed when everything ran.
        marks: Texts that its processes alone have in their command, environment or working directory.
    """

    folder: Path
    process: subprocess.Popen[str]
    ready: dict[str, Any] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)

    def end(self, number: signal.Signals) -> str:
        """Send a signal to the supervisor alone; returns the rest of its output."""
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=30)
        return output


@pytest.fixture
def start_instance(tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    """A function that starts an instance and waits until it is ready, as another user if a prefix says so."""
    instances = []

    def start(folder: Path | None = None, prefix: tuple[str, ...] = ()) -> Instance:
        command = [*prefix, sys.executable, str(_INSTANCE), str(folder or tmp_path / "var")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        instances.append(Instance(folder or tmp_path / "var", process))
        assert process.stdout is not None
        instances[-1].ready = json.loads(process.stdout.readline())
        instances[-1].marks = [str(path) for path in [instances[-1].folder, *_sockets(instances[-1].folder)]]
        return instances[-1]

    yield start
    for instance in instances:
        if instance.process.poll() is None:
            instance.end(signal.SIGTERM)
        assert instance.process.stdout is not None
        instance.process.stdout.close()
        for killed in instance.marks[1:]:
            shutil.rmtree(killed, ignore_errors=True)


@pytest.fixture
def survivors() -> Callable[[list[str]], list[str]]:
    """A function that waits until no process bears one of the marks, and names those that stay."""

    def find(marks: list[str]) -> list[str]:
        deadline = time.monotonic() + 10
        while (found := _bearing(marks)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    return find


@pytest.fixture
def unprivileged() -> tuple[str, ...]:
    """A command prefix that gives up root.

    The right to read everything is kept, since this interpreter may lie in root's own folder.
    """
    if os.geteuid() != 0:
        pytest.skip("the suite does not run as root, so every other test shows this")
    installed = Path(sysconfig.get_path("purelib"))
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in (installed, *installed.parents)):
        pytest.skip("this environment lies in a private folder, where another user can run no program")
    nobody = pwd.getpwnam("nobody")
    account = (f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
    return ("setpriv", *account, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def _sockets(folder: Path) -> list[Path]:
    return [link.readlink() for link in folder.glob("*/socket")]


def _bearing(marks: list[str]) -> list[str]:
    return [
        shown for shown in map(_shown, Path("/proc").glob("[0-9]*")) if any(mark in shown for mark in marks)
    ]


def _shown(process: Path) -> str:
    """Command, environment and working directory of a process; nothing of zombies, and nothing of pytest."""
    parts: list[str] = []
    if int(process.name) != os.getpid():
        for file in ("cmdline", "environ"):
            with suppress(OSError):
                parts.append((process / file).read_bytes().decode(errors="replace"))
        with suppress(OSError):
            parts.append(str((process / "cwd").readlink()))
    return " ".join([process.name, *parts])
