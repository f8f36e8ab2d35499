"""Train a network by a recipe."""

from __future__ import annotations

import torch
from torch import Tensor

from app.jobs.params import TrainingRecipe
from workers.data.batches import Batches, RowSource
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.training.confidence import Confidence
from workers.training.gradients import Differentiable
from workers.training.loop import Course, Trace, follow
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import Sgd
from workers.training.precision import autocast_dtype
from workers.training.schedule import LearningRate
from workers.training.tally import Tally

_MOST_NORMALISING_ROWS = 50_000
_BATCH_ROWS = 1024


def fit(
    network: Network,
    rows: RowSource,
    recipe: TrainingRecipe,
    seed: int,
    monitor: Monitor,
    *,
    confidence: Confidence | None = None,
) -> Trace:
    """Train a freshly initialised network on `rows`, whose pixels it is normalised by from then on.

    Of more than 50,000 rows a sample of that size gives the constants. Order and augmentation follow from the
    seed. A window of the trace is an epoch. `confidence`, fresh and of as many rows, notes every pass; it
    changes no bit of the weights.
    """
    places = _normalising_places(len(rows)).to(rows.index_device)
    network.normalise_by(batch.images for batch in rows.in_order(_BATCH_ROWS, places))
    batches = Batches(
        rows,
        batch_size=recipe.batch_size,
        augmentation=recipe.augmentation,
        seed=derived_seed(seed, "train"),
    )
    model = Differentiable(network, autocast=autocast_dtype(recipe.precision, rows.device))
    optimiser = Sgd(
        model.weights,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=recipe.nesterov,
    )
    steps = recipe.epochs * batches.steps_per_pass
    rate = LearningRate(
        peak=recipe.learning_rate,
        steps=steps,
        schedule=recipe.schedule,
        warmup_share=recipe.warmup_share,
    )
    tally = Tally()

    def update(step: int) -> None:
        batch = batches.at(step)
        loss = cross_entropy(batch, tally, "train")
        if confidence is not None:
            loss = confidence.heard(loss, batches.places(step), batch.labels)
        optimiser.step(objective_gradient(model, loss, recipe.objective), rate.at(step))

    course = Course(
        phase="train",
        model=model,
        optimisers=(optimiser,),
        update=update,
        tally=tally,
        steps=steps,
        window=batches.steps_per_pass,
        seed=seed,
        state={} if confidence is None else {"confidence": confidence.sums},
    )
    return follow(course, monitor)


def _normalising_places(count: int) -> Tensor:
    """Which of so many rows the constants are taken from: always the same."""
    return torch.from_numpy(sampled_places(count, _MOST_NORMALISING_ROWS, seed=0))
