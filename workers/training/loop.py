"""The one loop of steps: training and every iterative method go through it, and can go on after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from models_store.checkpoints import pack, unpack
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.training.gradients import Differentiable
from workers.training.optimiser import Sgd
from workers.training.tally import Tally


class Diverged(Exception):
    """The loss is no longer a finite number: the learning rate or the weight of forgetting is too high."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """So many steps of one kind.

    `update` carries out one step, which must be a function of the step's number, the weights, the running
    statistics and the optimisers' momentum: these are what a checkpoint holds. Layers that draw (dropout,
    stochastic depth) draw from the global generators, which are seeded by `seed` and the step's number. After
    every `window` steps the tally is read (the only time the host waits for the device) and a checkpoint is
    written.
    """

    phase: str
    model: Differentiable
    optimisers: tuple[Sgd, ...]
    update: Callable[[int], None]
    tally: Tally
    steps: int
    window: int
    seed: int
    started: float = field(default_factory=time.perf_counter)


@dataclass
class Trace:
    """What happened: the tally's figures a window, and the cost, over all attempts."""

    steps: int = 0
    passes: int = 0
    seconds: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)


def follow(course: Course, monitor: Monitor) -> Trace:
    """Take the steps, from the newest checkpoint on if there is one.

    The weights that come out are the same bits, however often the work was broken off and resumed.

    Raises:
        Cancelled: from the monitor, between two steps.
        Diverged: a window's loss is not finite.
    """
    trace = _resume(course, monitor.load_checkpoint())
    earlier_seconds = trace.seconds
    course.model.network.train()
    device = course.model.weights[0].device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for step in range(trace.steps, course.steps):
            monitor.check_cancelled()
            _seed_layers(derived_seed(course.seed, "layers", step), device)
            course.update(step)
            if (step + 1) % course.window == 0 or step + 1 == course.steps:
                trace.curve.append(_finite(course.tally.read()))
                trace.steps = step + 1
                trace.passes = course.model.passes
                trace.seconds = earlier_seconds + time.perf_counter() - course.started
                monitor.save_checkpoint(_checkpoint(course, trace))
            monitor.progress(course.phase, step + 1, course.steps, **(trace.curve[-1] if trace.curve else {}))
    return trace


def _seed_layers(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _finite(figures: dict[str, float]) -> dict[str, float]:
    if not all(math.isfinite(value) for value in figures.values()):
        raise Diverged("the loss is no longer finite; lower the learning rate or the weight of forgetting")
    return figures


def _checkpoint(course: Course, trace: Trace) -> bytes:
    tensors = {f"network.{name}": tensor for name, tensor in course.model.network.state_dict().items()}
    for number, optimiser in enumerate(course.optimisers):
        for name, velocity in zip(course.model.names, optimiser.velocity, strict=True):
            tensors[f"velocity.{number}.{name}"] = velocity
    return pack(tensors, vars(trace))


@torch.no_grad()
def _resume(course: Course, checkpoint: bytes | None) -> Trace:
    """Put the course where the checkpoint was written; without one it stands at its beginning."""
    if checkpoint is None:
        return Trace()
    tensors, facts = unpack(checkpoint)
    for name, tensor in course.model.network.state_dict().items():
        tensor.copy_(tensors[f"network.{name}"])
    for number, optimiser in enumerate(course.optimisers):
        for name, velocity in zip(course.model.names, optimiser.velocity, strict=True):
            velocity.copy_(tensors[f"velocity.{number}.{name}"])
    course.model.passes = facts["passes"]
    return Trace(**facts)
