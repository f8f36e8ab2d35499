"""The one loop of steps: training and every iterative method go through it, and can go on after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from models_store.checkpoints import pack, unpack
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.training.gradients import Differentiable
from workers.training.optimiser import Optimiser
from workers.training.tally import Tally

Reading = dict[str, float]


class Diverged(Exception):
    """The loss is no longer a finite number: the learning rate or the weight of forgetting is too high."""

    def __init__(self, reason: str = "the loss is no longer finite") -> None:
        super().__init__(f"{reason}; lower the learning rate or the weight of forgetting")


class Watch(Protocol):
    """Judges the network at the end of every window, and remembers the state that is to be kept."""

    @property
    def state(self) -> Mapping[str, Tensor]:
        """What it remembers, as tensors that a checkpoint holds and restores in place."""

    def read(self, step: int) -> Reading:
        """Judge the network as it is after so many steps, and remember it if it is the one to keep."""

    def is_over(self, readings: Sequence[Reading]) -> bool:
        """Whether going on cannot be expected to help."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """So many steps of one kind.

    `update` carries out one step, which must be a function of the step's number, the weights, the running
    statistics, the optimisers' state and `state`: these are what a checkpoint holds. Layers that draw
    (dropout, stochastic depth) draw from the global generators, which are seeded by `seed` and the step's
    number. After every `window` steps the tally is read (the only time the host waits for the device), the
    watch looks, and a checkpoint is written. `keep` stores the network as a window finds it, and names what
    it stored. `evaluation`: take the steps in evaluation mode.
    """

    phase: str
    model: Differentiable
    optimisers: tuple[Optimiser, ...]
    update: Callable[[int], None]
    tally: Tally
    steps: int
    window: int
    seed: int
    state: Mapping[str, Tensor] = field(default_factory=dict)
    keep: Callable[[], str] | None = None
    watch: Watch | None = None
    evaluation: bool = False
    started: float = field(default_factory=time.perf_counter)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that the next step depends on, by name: to be saved, and to be restored in place."""
        tensors = {f"network.{name}": tensor for name, tensor in self.model.network.state_dict().items()}
        for number, optimiser in enumerate(self.optimisers):
            tensors |= {f"optimiser.{number}.{place}": t for place, t in enumerate(optimiser.state)}
        tensors |= {f"state.{name}": tensor for name, tensor in self.state.items()}
        if self.watch is not None:
            tensors |= {f"watch.{name}": tensor for name, tensor in self.watch.state.items()}
        return tensors


@dataclass
class Trace:
    """What happened: the tally's figures a window, the watch's readings, and the cost, over all attempts.

    The first reading is that of the network at the beginning. `diverged`: the steps ended because the loss
    was no longer finite, and what the watch had kept before is the result. `kept`: the names of what was
    stored at the beginning of each window.
    """

    steps: int = 0
    passes: int = 0
    seconds: float = 0.0
    diverged: bool = False
    curve: list[dict[str, float]] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def follow(course: Course, monitor: Monitor) -> Trace:
    """Take the steps, from the newest checkpoint on if there is one, until they end or the watch says so.

    The weights that come out are the same bits, however often the work was broken off and resumed.

    Raises:
        Cancelled: from the monitor, between two steps.
        Diverged: a window's loss is not finite, and no watch has kept an earlier state.
    """
    trace = _resume(course, monitor.load_checkpoint())
    earlier_seconds = trace.seconds
    watch = course.watch
    if watch is not None and not trace.readings:
        trace.readings.append(watch.read(0))
    network = course.model.network.train(not course.evaluation)
    device = course.model.weights[0].device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        while trace.steps < course.steps and not (watch is not None and watch.is_over(trace.readings)):
            end = min(course.steps, trace.steps + course.window)
            if course.keep is not None:
                trace.kept.append(course.keep())
            for step in range(trace.steps, end):
                monitor.check_cancelled()
                _seed_layers(derived_seed(course.seed, "layers", step), device)
                course.update(step)
                if step + 1 < end:
                    shown = trace.curve[-1] if trace.curve else {}
                    monitor.progress(course.phase, step + 1, course.steps, **shown)
            figures = course.tally.read()
            trace.diverged = not all(math.isfinite(value) for value in figures.values())
            if trace.diverged:
                if len(trace.readings) > 1:
                    break
                raise Diverged
            trace.steps = end
            trace.curve.append(figures)
            if watch is not None:
                trace.readings.append(watch.read(end))
                network.train(not course.evaluation)
            trace.passes = course.model.passes
            trace.seconds = earlier_seconds + time.perf_counter() - course.started
            monitor.save_checkpoint(pack(course.tensors, vars(trace)))
            monitor.progress(course.phase, end, course.steps, **trace.curve[-1])
    return trace


def _seed_layers(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@torch.no_grad()
def _resume(course: Course, checkpoint: bytes | None) -> Trace:
    """Put the course where the checkpoint was written; without one it stands at its beginning.

    A checkpoint of other tensors is an earlier release's: steps are taken anew rather than failed.
    """
    if checkpoint is None:
        return Trace()
    tensors, facts = unpack(checkpoint)
    places = course.tensors
    if tensors.keys() != places.keys():
        return Trace()
    for name, tensor in places.items():
        tensor.copy_(tensors[name])
    course.model.passes = facts["passes"]
    return Trace(**facts)
