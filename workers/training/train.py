"""Train a network by a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from app.jobs.params import TrainingRecipe
from workers.data.batches import Batches, Rows, RowSource
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.training.confidence import Confidence
from workers.training.gradients import Differentiable, Loss
from workers.training.keeping import Average, BestEpoch
from workers.training.loop import Course, Diverged, Trace, follow
from workers.training.objectives import descent, recipe_loss
from workers.training.optimiser import optimiser
from workers.training.precision import autocast_dtype
from workers.training.schedule import LearningRate
from workers.training.tally import Tally

_MOST_NORMALISING_ROWS = 50_000
_BATCH_ROWS = 1024


class NoValidation(Exception):
    """The recipe stops by the validation rows, and there are none."""

    def __init__(self) -> None:
        super().__init__("the recipe's patience is counted on validation rows, and there are none")


@dataclass(frozen=True)
class Lesson:
    """What a network is taught, and how.

    Attributes:
        rows: What it learns.
        recipe: By what rules.
        seed: Decides the order of the rows, their augmentation, and what layers draw.
        validation: What a recipe with patience stops by.
        confidence: Fresh, and of as many rows: notes every pass, and changes no bit of the weights.
        keep: Stores the network at the beginning of every epoch, and names what it stored.
        absent: bool [n], on the rows' `index_device`: rows that are left out of their batches, whose other
            rows count as before. So a training is repeated, step by step, without them.
    """

    rows: RowSource
    recipe: TrainingRecipe
    seed: int
    validation: RowSource | None = None
    confidence: Confidence | None = None
    keep: Callable[[], str] | None = None
    absent: Tensor | None = None


def fit(network: Network, lesson: Lesson, monitor: Monitor) -> Trace:
    """Train a freshly initialised network, which is normalised by the lesson's pixels from then on.

    Of more than 50,000 rows a sample of that size gives the constants. A window of the trace is an epoch.

    Raises:
        NoValidation: the recipe has patience, and there is no validation row.
        Diverged: the loss left the finite numbers.
        Cancelled: from the monitor.
    """
    rows, recipe = lesson.rows, lesson.recipe
    places = _normalising_places(len(rows)).to(rows.index_device)
    network.normalise_by(batch.images for batch in rows.in_order(_BATCH_ROWS, places))
    network.to(memory_format=torch.channels_last)
    model = Differentiable(network, autocast=autocast_dtype(recipe.precision, rows.device))
    batches = Batches(
        rows,
        batch_size=recipe.batch_size,
        augmentation=recipe.augmentation,
        seed=derived_seed(lesson.seed, "train"),
    )
    steps = recipe.epochs * batches.steps_per_pass
    rate = LearningRate(
        peak=recipe.learning_rate,
        steps=steps,
        schedule=recipe.schedule,
        warmup_share=recipe.warmup_share,
    )
    tally = Tally()
    steepest = descent(model, recipe.objective, tally, window=batches.steps_per_pass)
    losses = _losses(lesson, tally)
    mover = optimiser(recipe, model.weights)
    average = None if recipe.averaging is None else Average(network, recipe.averaging)
    watch = _watch(lesson, network, average)

    def update(step: int) -> None:
        if not (parts := losses(batches.at(step), batches.places(step))):
            return
        mover.step(steepest.gradient(parts, step), rate.at(step))
        if average is not None:
            average.follow(step)

    state = {f"descent.{name}": tensor for name, tensor in steepest.state.items()}
    if average is not None:
        state |= {f"average.{name}": tensor for name, tensor in average.state.items()}
    if lesson.confidence is not None:
        state["confidence"] = lesson.confidence.sums
    course = Course(
        phase="train",
        model=model,
        optimisers=(mover,),
        update=update,
        tally=tally,
        steps=steps,
        window=batches.steps_per_pass,
        seed=lesson.seed,
        state=state,
        keep=lesson.keep,
        watch=watch,
    )
    trace = follow(course, monitor)
    if trace.diverged:
        raise Diverged
    if watch is not None:
        watch.put_back()
    elif average is not None:
        average.exchange()
    return trace


def _losses(lesson: Lesson, tally: Tally) -> Callable[[Rows, Tensor], list[Loss]]:
    """The losses of a batch's parts, given the batch and its places; they add up to the batch's mean."""
    recipe, confidence = lesson.recipe, lesson.confidence

    def losses(batch: Rows, places: Tensor) -> list[Loss]:
        size = len(batch)
        if lesson.absent is not None:
            present = torch.nonzero(~lesson.absent[places]).squeeze(1)
            batch, places = batch.take(present.to(batch.device)), places[present]
        images = batch.images.contiguous(memory_format=torch.channels_last)
        wholes = (images, batch.labels, places)
        parts = min(recipe.accumulation, len(batch))
        cut = zip(*(whole.tensor_split(parts) for whole in wholes), strict=True) if parts else ()
        return [loss_of(Rows(*part), where, len(where) / size) for *part, where in cut]

    def loss_of(part: Rows, places: Tensor, share: float) -> Loss:
        loss = recipe_loss(part, tally, recipe, scale=share)
        return loss if confidence is None else confidence.heard(loss, places, part.labels)

    return losses


def _watch(lesson: Lesson, network: Network, average: Average | None) -> BestEpoch | None:
    patience, validation = lesson.recipe.patience, lesson.validation
    if patience is None:
        return None
    if validation is None or not len(validation):
        raise NoValidation
    return BestEpoch(network, validation, patience=patience, average=average)


def _normalising_places(count: int) -> Tensor:
    """Which of so many rows the constants are taken from: always the same."""
    return torch.from_numpy(sampled_places(count, _MOST_NORMALISING_ROWS, seed=0))
