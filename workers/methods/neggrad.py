"""Descend on the remaining rows and ascend on the deleted ones in the same step."""

from __future__ import annotations

from torch import Tensor

from app.jobs.params import NegGrad
from workers.methods.run import Run, take_steps
from workers.training.gradients import Forward
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import Sgd
from workers.training.tally import Tally


def neggrad(run: Run, parameters: NegGrad) -> Trace:
    """Descend on alpha * CE(R) - (1 - alpha) * CE(F): NegGrad+ of Kurmanji et al. 2023, section 3.

    Running statistics follow the batches of R only, so that nothing of F enters them.
    """
    model = run.model(parameters.precision)
    retain = run.retain_batches(parameters.retain_batch_size)
    forget = run.forget_batches(parameters.forget_batch_size)
    optimiser = Sgd(model.weights, momentum=parameters.momentum, weight_decay=parameters.weight_decay)

    def update(step: int, rate: float, tally: Tally) -> None:
        keeping = cross_entropy(retain.at(step), tally, "retain", scale=parameters.alpha)
        forgetting = cross_entropy(
            forget.at(step), tally, "forget", moves_statistics=False, scale=parameters.alpha - 1
        )

        def loss(forward: Forward) -> Tensor:
            return keeping(forward) + forgetting(forward)

        optimiser.step(objective_gradient(model, loss, parameters.objective), rate)

    return take_steps(run, parameters, model=model, optimisers=(optimiser,), update=update)
