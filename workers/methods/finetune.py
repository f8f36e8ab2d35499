"""Go on training on the remaining rows and let the rest fade."""

from __future__ import annotations

from app.jobs.params import Finetune
from workers.methods.run import Moves, Run, budget, take_steps
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import optimiser
from workers.training.tally import Tally


def finetune(run: Run, parameters: Finetune) -> Trace:
    """Descend on CE(R) alone (Golatkar et al. 2020)."""
    model = run.model(parameters.precision)
    batches = run.retain_batches(parameters.retain_batch_size)
    descent = optimiser(parameters, model.weights)

    def update(step: int, rate: float, tally: Tally) -> None:
        loss = cross_entropy(batches.at(step), tally, "retain")
        descent.step(objective_gradient(model, loss, parameters.objective), rate)

    steps = budget(parameters, batches)
    return take_steps(run, parameters, Moves(model=model, optimisers=(descent,), update=update, steps=steps))
