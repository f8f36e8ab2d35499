"""Descend on the remaining rows and ascend on the deleted ones in the same step."""

from __future__ import annotations

from torch import Tensor

from app.jobs.params import NegGrad
from workers.methods.run import Moves, Run, budget, take_steps
from workers.training import multi_tensor
from workers.training.gradients import Forward
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import optimiser
from workers.training.tally import Tally


def neggrad(run: Run, parameters: NegGrad) -> Trace:
    """Descend on alpha * CE(R) - (1 - alpha) * CE(F): NegGrad+ of Kurmanji et al. 2023, section 3.

    Running statistics follow the batches of R only, so that nothing of F enters them. With `sharpness_on`
    set to `retain` the objective's ascent step sees CE(R) alone: flat ground is sought for what is kept.
    """
    model = run.model(parameters.precision)
    retain = run.retain_batches(parameters.retain_batch_size)
    forget = run.forget_batches(parameters.forget_batch_size)
    aim = run.counterfactual(parameters.precision) if parameters.ceiling == "unseen" else None
    descent = optimiser(parameters, model.weights)

    def update(step: int, rate: float, tally: Tally) -> None:
        keeping = cross_entropy(retain.at(step), tally, "retain", scale=parameters.alpha)
        forgetting = cross_entropy(
            forget.at(step),
            tally,
            "forget",
            moves_statistics=False,
            scale=parameters.alpha - 1,
            below=None if aim is None else aim.losses[forget.places(step)],
        )

        def both(forward: Forward) -> Tensor:
            return keeping(forward) + forgetting(forward)

        if parameters.sharpness_on == "both":
            gradients = objective_gradient(model, both, parameters.objective)
        else:
            gradients = objective_gradient(model, keeping, parameters.objective)
            multi_tensor.add_(gradients, model.gradient(forgetting))
        descent.step(gradients, rate)

    steps = budget(parameters, retain)
    moves = Moves(model=model, optimisers=(descent,), update=update, steps=steps, aim=aim)
    return take_steps(run, parameters, moves)
