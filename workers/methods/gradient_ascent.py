"""Ascend on the deleted rows, and look at nothing else."""

from __future__ import annotations

from app.jobs.params import GradientAscent
from workers.methods.run import Moves, Run, budget, take_steps
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import optimiser
from workers.training.tally import Tally


def gradient_ascent(run: Run, parameters: GradientAscent) -> Trace:
    """Descend on -CE(F) (Thudi et al. 2022, section 5).

    The steps are taken in evaluation mode: were batches of F normalised by their own statistics, the network
    would forget under statistics that it is never used with, and running ones would become those of F.
    """
    model = run.model(parameters.precision)
    batches = run.forget_batches(parameters.forget_batch_size)
    ascent = optimiser(parameters, model.weights)

    def update(step: int, rate: float, tally: Tally) -> None:
        loss = cross_entropy(batches.at(step), tally, "forget", moves_statistics=False, scale=-1)
        ascent.step(objective_gradient(model, loss, parameters.objective), rate)

    return take_steps(
        run,
        parameters,
        Moves(
            model=model,
            optimisers=(ascent,),
            update=update,
            steps=budget(parameters, batches),
            evaluation=True,
        ),
    )
