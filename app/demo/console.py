"""Where the demo speaks: paragraphs, and progress that overwrites its own line on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Console:
    """`write` takes text as it is; `is_terminal` says whether a line can be overwritten."""

    write: Callable[[str], None]
    is_terminal: bool

    def say(self, text: str) -> None:
        """A finished line or paragraph."""
        self.write(f"{text}\n")

    def teller(self, title: str) -> Callable[[Json], None]:
        """A function that shows where a job stands: every change on a terminal, each phase elsewhere."""
        shown = ""

        def tell(job: Json) -> None:
            nonlocal shown
            standing = _standing(job)
            if standing == shown:
                return
            if self.is_terminal:
                ending = "\n" if job["finished_at"] else ""
                self.write(f"\r  {title}: {standing.ljust(len(shown))}{ending}")
            elif job["finished_at"] or standing.split()[0] != shown.partition(" ")[0]:
                self.say(f"  {title}: {standing}")
            shown = standing

        return tell


def _standing(job: Json) -> str:
    progress, state = job["progress"], job["state"]
    if state == "running" and progress is not None:
        return f"{progress['phase']} {progress['done']}/{progress['total']}"
    return state if job["reason"] is None else f"{state} ({job['reason']})"
