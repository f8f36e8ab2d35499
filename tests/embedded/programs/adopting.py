"""A supervisor whose part leaves a stray process behind each time it runs; ends when the part runs again.

    adopting.py FOLDER

Writes whether the stray of the first run was alive when the second run had begun.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from app import logs
from app.embedded import Part, Supervisor
from app.embedded.processes import Program
from app.embedded.signals import StopRequested

_SCRIPT = "setsid sleep 600 & echo $! >> strays; test $(wc -l < strays) -ge 2 && exec sleep 60"


def main(folder: Path) -> None:
    """Run until there are two strays."""
    logs.configure("adopting", file=folder / "adopting.log")
    strays = folder / "strays"

    def pause(seconds: float) -> None:
        time.sleep(seconds)
        found = strays.read_text().split() if strays.exists() else []
        if len(found) == 2:
            sys.stdout.write(str(Path("/proc", found[0]).exists()))
            raise StopRequested

    program = Program(
        name="part",
        arguments=("/bin/sh", "-c", _SCRIPT),
        log=folder / "part.log",
        folder=folder,
        environment={},
    )
    with Supervisor(pause, adopts=True, first_delay=0.01) as supervisor:
        supervisor.start(Part(program=program))
        supervisor.watch()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except StopRequested:
        sys.stdout.write("\n")
