"""What a running computation tells its surroundings, and what it asks of them."""

from __future__ import annotations

from typing import Protocol


class Cancelled(Exception):
    """Somebody asked for this job to stop; raised between two steps."""


class Monitor(Protocol):
    """The pipeline's only way out: no database, no queue, no clock that a test could not replace."""

    def progress(self, phase: str, done: int, total: int, **figures: float) -> None:
        """Say where the computation stands. Cheap to call every step: the receiver thins it out."""

    def check_cancelled(self) -> None:
        """Raise Cancelled if the job is to stop. Called between steps."""

    def load_checkpoint(self) -> bytes | None:
        """The newest checkpoint of this very job and spec, or None."""

    def save_checkpoint(self, content: bytes) -> None:
        """Keep `content` (safetensors) so that a later attempt can go on from here, bit for bit."""


class Silent:
    """A Monitor that says nothing and keeps the newest checkpoint in memory; for benchmarks and tests."""

    def __init__(self, checkpoint: bytes | None = None) -> None:
        self.checkpoint = checkpoint

    def progress(self, phase: str, done: int, total: int, **figures: float) -> None:
        """Ignore it."""

    def check_cancelled(self) -> None:
        """Never cancelled."""

    def load_checkpoint(self) -> bytes | None:
        return self.checkpoint

    def save_checkpoint(self, content: bytes) -> None:
        self.checkpoint = content


class WithoutCheckpoints:
    """Progress and cancellation alone, for a part of a job that begins anew when it is broken off."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def progress(self, phase: str, done: int, total: int, **figures: float) -> None:
        """As the monitor."""
        self._monitor.progress(phase, done, total, **figures)

    def check_cancelled(self) -> None:
        """As the monitor."""
        self._monitor.check_cancelled()

    def load_checkpoint(self) -> bytes | None:
        return None

    def save_checkpoint(self, content: bytes) -> None:
        """Keep nothing."""
