"""What every method is given, and how those that take steps take them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from app.jobs.params import Iterative, Precision, TrainingRecipe
from workers.data.batches import Batches, RowSource
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.training.gradients import Differentiable
from workers.training.loop import Course, Trace, follow
from workers.training.optimiser import Sgd
from workers.training.precision import autocast_dtype
from workers.training.schedule import LearningRate
from workers.training.tally import Tally

_WINDOWS = 10  # checkpoints, and readings of the figures, in a run of a method


@dataclass(frozen=True, kw_only=True)
class Run:
    """One network to be changed in place, the rows it is to keep and to forget, and the way out."""

    network: Network
    retain: RowSource
    forget: RowSource
    recipe: TrainingRecipe  # how the network was trained
    seed: int
    monitor: Monitor
    started: float = field(default_factory=time.perf_counter)

    def model(self, precision: Precision) -> Differentiable:
        """The network as gradients are taken of it."""
        return Differentiable(self.network, autocast=autocast_dtype(precision, self.retain.device))

    def retain_batches(self, batch_size: int) -> Batches:
        """Shuffled batches of R, augmented as in training."""
        return self._batches(self.retain, batch_size, "retain")

    def forget_batches(self, batch_size: int) -> Batches:
        """Shuffled batches of F, augmented as in training."""
        return self._batches(self.forget, batch_size, "forget")

    def _batches(self, rows: RowSource, batch_size: int, name: str) -> Batches:
        return Batches(
            rows,
            batch_size=batch_size,
            augmentation=self.recipe.augmentation,
            seed=derived_seed(self.seed, name),
        )


def take_steps(
    run: Run,
    parameters: Iterative,
    *,
    model: Differentiable,
    optimisers: tuple[Sgd, ...],
    update: Callable[[int, float, Tally], None],
) -> Trace:
    """Take a method's steps; `update` is given the step's number, its learning rate, and the tally."""
    rate = LearningRate(peak=parameters.learning_rate, steps=parameters.steps, schedule=parameters.schedule)
    tally = Tally()
    course = Course(
        phase="unlearn",
        model=model,
        optimisers=optimisers,
        update=lambda step: update(step, rate.at(step), tally),
        tally=tally,
        steps=parameters.steps,
        window=-(-parameters.steps // _WINDOWS),
        seed=run.seed,
        started=run.started,
    )
    return follow(course, run.monitor)
