"""The learning rate of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.jobs.params import Schedule


@dataclass(frozen=True, kw_only=True)
class LearningRate:
    """Rises linearly to `peak` over the first part of the steps, then stays or falls to 0 at the end."""

    peak: float
    steps: int
    schedule: Schedule
    warmup_share: float = 0.0

    def at(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        warmup = round(self.warmup_share * self.steps)
        if step < warmup:
            return self.peak * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        match self.schedule:
            case "constant":
                return self.peak
            case "linear":
                return self.peak * (1 - done)
            case "cosine":
                return self.peak * (1 + math.cos(math.pi * done)) / 2
