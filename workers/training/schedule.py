"""The learning rate of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.jobs.params import TrainingSchedule

_FALLS = (0.5, 0.75)  # of the steps after the warm-up: He et al. 2016, section 4.2
_FALL = 0.1
_CYCLE_START, _CYCLE_END = 1 / 25, 1 / 25e4  # of the peak: Smith & Topin 2018, as in PyTorch's OneCycleLR


@dataclass(frozen=True, kw_only=True)
class LearningRate:
    """Rises to `peak` over the first part of the steps, then stays, or falls: to about 0 at the end.

    The rise is linear; that of one cycle follows a cosine, from a 25th of the peak.
    """

    peak: float
    steps: int
    schedule: TrainingSchedule
    warmup_share: float = 0.0

    def at(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        warmup = round(self.warmup_share * self.steps)
        if self.schedule == "one_cycle":
            return self._of_one_cycle(step)
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
            case "step":
                return self.peak * _FALL ** sum(done >= fall for fall in _FALLS)

    def _of_one_cycle(self, step: int) -> float:
        top = self.warmup_share * self.steps - 1
        if step < top:
            return self.peak * _between(_CYCLE_START, 1, step / top)
        return self.peak * _between(1, _CYCLE_END, (step - top) / max(self.steps - 1 - top, 1))


def _between(start: float, end: float, done: float) -> float:
    """Half a cosine from one value to the other."""
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2
