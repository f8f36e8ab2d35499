"""An instance built as `expunge up` builds it, with a stand-in for the programs that are Expunge's own.

    instance.py FOLDER

Writes one line of JSON when everything runs; ends on a stop signal. The stand-in starts a process in a
session of its own, as a worker starts its jobs; that process watches its parent.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

from app import logs
from app.embedded import Part, Postgres, Supervisor, Valkey
from app.embedded.processes import Program
from app.embedded.signals import StopRequested, stop_signals

_WORKER = """
import os, subprocess, sys, time
from app.embedded import processes
command = [sys.executable, "-c", "import time; time.sleep(600)"]
launcher = [sys.executable, str(processes.LAUNCHER), str(os.getpid()), "9", ""]
job = subprocess.Popen(launcher + command, start_new_session=True)
open(sys.argv[1], "w").write(str(job.pid))
time.sleep(600)
"""


def _worker(folder: Path) -> Part:
    job = folder / "job.pid"
    job.unlink(missing_ok=True)
    program = Program(
        name="worker",
        arguments=(sys.executable, "-c", _WORKER, str(job)),
        log=folder / "worker.log",
        folder=folder,
        environment={},
    )
    return Part(program=program, is_ready=lambda: job.exists() and job.stat().st_size > 0)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(folder: Path) -> None:
    """Run until told to stop."""
    folder.mkdir(exist_ok=True)
    logs.configure("instance", file=folder / "instance.log")
    with stop_signals() as pause, ExitStack() as stack:
        postgres = stack.enter_context(Postgres(folder / "postgres", settings={"fsync": "off"}).prepared())
        valkey = stack.enter_context(Valkey(folder / "valkey").prepared())
        supervisor = stack.enter_context(Supervisor(pause, adopts=True, first_delay=0.05))
        for part in (postgres, valkey, _worker(folder)):
            supervisor.start(part)
        _say(json.dumps({"database": postgres.url, "broker": valkey.url}))
        supervisor.watch()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except StopRequested as request:
        _say(f"stopped by {request}")
