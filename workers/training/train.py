"""Train a network by a recipe."""

from __future__ import annotations

from app.jobs.params import TrainingRecipe
from workers.data.batches import Batches, Rows
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.training.gradients import Differentiable
from workers.training.loop import Course, Trace, follow
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import Sgd
from workers.training.precision import autocast_dtype
from workers.training.schedule import LearningRate
from workers.training.tally import Tally


def fit(network: Network, rows: Rows, recipe: TrainingRecipe, seed: int, monitor: Monitor) -> Trace:
    """Train a freshly initialised network on `rows`, whose pixels it is normalised by from then on.

    Order and augmentation follow from the seed. A window of the trace is an epoch.
    """
    network.normalise_by(rows.images)
    batches = Batches(
        rows,
        batch_size=recipe.batch_size,
        augmentation=recipe.augmentation,
        seed=derived_seed(seed, "train"),
    )
    model = Differentiable(network, autocast=autocast_dtype(recipe.precision, rows.labels.device))
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
        loss = cross_entropy(batches.at(step), tally, "train")
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
    )
    return follow(course, monitor)
