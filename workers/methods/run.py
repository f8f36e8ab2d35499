"""What every method is given, and how those that take steps take them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from app.jobs.params import Precision, Steps, TrainingRecipe
from workers.data.batches import Batches, RowSource
from workers.data.seeds import derived_seed
from workers.methods.counterfactual import Counterfactual, counterfactual
from workers.methods.judge import Judge
from workers.methods.past import Past
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.training.gradients import Differentiable
from workers.training.loop import Course, Trace, follow
from workers.training.objectives import cross_entropy
from workers.training.optimiser import Optimiser, Sgd
from workers.training.precision import autocast_dtype
from workers.training.schedule import LearningRate
from workers.training.tally import Tally

_WINDOWS = 10  # checkpoints, and readings of the figures, in a run that does not look at itself

Update = Callable[[int, float, Tally], None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One network to be changed in place, the rows it is to keep and to forget, and the way out.

    Attributes:
        network: At its original weights.
        retain: The rows that remain.
        forget: The rows to forget.
        validation: Rows that were never trained on and are not audited with: a method judges itself by them.
        kin: Those of them that are of the same people as the rows to forget.
        standing: Where each row of F stands among the training rows of its class, by how late it was learned:
            float64 [len(F)] in (0, 1).
        past: The training that it comes from, if that is on record.
        recipe: How the network was trained.
        seed: Decides every draw.
        monitor: The way out.
        kept: What a method leaves behind besides the weights, by name: one tensor a weight.
        judged: What it found out about its own course.
    """

    network: Network
    retain: RowSource
    forget: RowSource
    validation: RowSource | None = None
    kin: RowSource | None = None
    standing: Tensor | None = None
    past: Past | None = None
    recipe: TrainingRecipe
    seed: int
    monitor: Monitor
    started: float = field(default_factory=time.perf_counter)
    kept: dict[str, Mapping[str, Tensor]] = field(default_factory=dict)
    judged: dict[str, object] = field(default_factory=dict)

    def model(self, precision: Precision) -> Differentiable:
        """The network as gradients are taken of it."""
        return Differentiable(self.network, autocast=autocast_dtype(precision, self.retain.device))

    def retain_batches(self, batch_size: int) -> Batches:
        """Shuffled batches of R, augmented as in training."""
        return self._batches(self.retain, batch_size, "retain")

    def forget_batches(self, batch_size: int) -> Batches:
        """Shuffled batches of F, augmented as in training."""
        return self._batches(self.forget, batch_size, "forget")

    def counterfactual(self, precision: Precision) -> Counterfactual | None:
        """What a network that never saw F would make of it, by the network at its original weights."""
        return counterfactual(self.network, self, precision=precision, seed=self.seed)

    def keep_mask(self, model: Differentiable, mask: list[Tensor]) -> None:
        """Leave behind which weights were let move, for whoever wants to check it."""
        self.kept["mask"] = dict(zip(model.names, mask, strict=True))

    def _batches(self, rows: RowSource, batch_size: int, name: str) -> Batches:
        return Batches(
            rows,
            batch_size=batch_size,
            augmentation=self.recipe.augmentation,
            seed=derived_seed(self.seed, name),
        )


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How a method moves the weights.

    Attributes:
        model: The network as gradients are taken of it.
        optimisers: All that `update` has step.
        update: One step, given its number, its learning rate, and the tally.
        steps: How many at most.
        evaluation: Whether the network is in evaluation mode meanwhile.
        aim: What the method has found out of it already.
    """

    model: Differentiable
    optimisers: tuple[Optimiser, ...]
    update: Update
    steps: int
    evaluation: bool = False
    aim: Counterfactual | None = None


def budget(parameters: Steps, batches: Batches) -> int:
    """How many steps the parameters grant: as many as they say, or as passes over these batches take."""
    if parameters.epochs is None:
        return parameters.steps
    return max(1, math.ceil(parameters.epochs * batches.steps_per_pass))


def take_steps(run: Run, parameters: Steps, moves: Moves) -> Trace:
    """Take a method's steps, and end with the network of the step that its own readings speak for."""
    rate = LearningRate(peak=parameters.learning_rate, steps=moves.steps, schedule=parameters.schedule)
    judge = _judge(run, parameters, moves.aim) if parameters.readings else None
    tally = Tally()
    course = Course(
        phase="unlearn",
        model=moves.model,
        optimisers=moves.optimisers,
        update=lambda step: moves.update(step, rate.at(step), tally),
        tally=tally,
        steps=moves.steps,
        window=math.ceil(moves.steps / (parameters.readings if judge else _WINDOWS)),
        seed=run.seed,
        watch=judge,
        evaluation=moves.evaluation,
        started=run.started,
    )
    trace = follow(course, run.monitor)
    if judge is not None:
        judge.put_back()
        run.judged.update(
            target=judge.target,
            readings=trace.readings,
            kept_step=int(judge.kept(trace.readings)["step"]),
            diverged=trace.diverged,
            rebound=_rebound(run, parameters, moves.model, judge) if parameters.rebound_steps else None,
        )
    return trace


def _judge(run: Run, parameters: Steps, aim: Counterfactual | None) -> Judge | None:
    aim = aim or run.counterfactual(parameters.precision)
    target = None if aim is None else aim.accuracy
    return Judge.of(run.network, parameters, run.seed, run, target=target)


def _rebound(run: Run, parameters: Steps, model: Differentiable, judge: Judge) -> float:
    """By how much plain steps on R raise the accuracy on F again: what was hidden rather than forgotten.

    The steps are those that training would go on with, at the method's learning rate. The network is as it
    was afterwards, and the cost is not the method's.
    """
    before, passes = judge.forget_accuracy(), model.passes
    batches = run.retain_batches(run.recipe.batch_size)
    steps, tally = parameters.rebound_steps, Tally()
    rate = LearningRate(peak=parameters.learning_rate, steps=steps, schedule="linear")
    descent = Sgd(model.weights, momentum=run.recipe.momentum, weight_decay=run.recipe.weight_decay)
    run.network.train()
    for step in range(steps):
        run.monitor.check_cancelled()
        descent.step(model.gradient(cross_entropy(batches.at(step), tally, "retain")), rate.at(step))
    risen = judge.forget_accuracy() - before
    judge.put_back()
    model.passes = passes
    return risen
