"""How the demo shows a job's progress."""

from __future__ import annotations

from typing import Any

import pytest

from app.demo.console import Console


def _job(state: str, progress: tuple[str, int] | None = None, **facts: Any) -> dict[str, Any]:
    shown = {"phase": progress[0], "done": progress[1], "total": 9} if progress else None
    return {"state": state, "reason": None, "finished_at": None, "progress": shown, **facts}


JOB = [
    _job("queued"),
    _job("running", ("train", 1)),
    _job("running", ("train", 1)),
    _job("running", ("train", 7)),
    _job("done", ("train", 9), reason="version 1", finished_at="now"),
]


def _told(*, is_terminal: bool) -> str:
    written: list[str] = []
    tell = Console(write=written.append, is_terminal=is_terminal).teller("train")
    for job in JOB:
        tell(job)
    return "".join(written)


def test_a_log_gets_a_line_for_each_phase() -> None:
    """Steps within a phase are not worth a line of a file; the end is."""
    assert _told(is_terminal=False) == ("  train: queued\n  train: train 1/9\n  train: done (version 1)\n")


def test_a_terminal_gets_every_step_on_one_line() -> None:
    """Each standing overwrites the one before completely, and only the end begins a new line."""
    told = _told(is_terminal=True)

    assert told.count("\n") == 1
    assert told.split("\r")[1:] == [
        "  train: queued",
        "  train: train 1/9",
        "  train: train 7/9",
        "  train: done (version 1)\n",
    ]


@pytest.mark.parametrize(("longer", "shorter"), [("train 100/900", "audit 1/3")])
def test_a_shorter_standing_covers_a_longer_one(longer: str, shorter: str) -> None:
    """Nothing of the longer line stays visible."""
    written: list[str] = []
    tell = Console(write=written.append, is_terminal=True).teller("x")
    for standing in (longer, shorter):
        phase, _, steps = standing.partition(" ")
        done, _, total = steps.partition("/")
        progress = {"phase": phase, "done": int(done), "total": int(total)}
        tell({"state": "running", "reason": None, "finished_at": None, "progress": progress})

    assert len(written[1]) == len(written[0])
