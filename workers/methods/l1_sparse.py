"""Go on training on the remaining rows while an l1 penalty thins the weights."""

from __future__ import annotations

from app.jobs.params import L1Sparse
from workers.methods.run import Moves, Run, budget, take_steps
from workers.training import multi_tensor
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import optimiser
from workers.training.tally import Tally


def l1_sparse(run: Run, parameters: L1Sparse) -> Trace:
    """Descend on CE(R) + l1 * (1 - t / T) * |w|_1 (Jia et al. 2023, section 4, with falling weight).

    The penalty is over every weight, biases and those of normalisation included. Its subgradient, 0 at 0,
    joins the gradient after a sharp objective's ascent step, which looks at the loss alone.
    """
    model = run.model(parameters.precision)
    batches = run.retain_batches(parameters.retain_batch_size)
    descent = optimiser(parameters, model.weights)
    steps = budget(parameters, batches)

    def update(step: int, rate: float, tally: Tally) -> None:
        loss = cross_entropy(batches.at(step), tally, "retain")
        gradients = objective_gradient(model, loss, parameters.objective)
        signs = multi_tensor.sign([weight.detach() for weight in model.weights])
        multi_tensor.add_(gradients, signs, parameters.l1 * (1 - step / steps))
        descent.step(gradients, rate)

    return take_steps(run, parameters, Moves(model=model, optimisers=(descent,), update=update, steps=steps))
