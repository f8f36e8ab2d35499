"""Sharp MinMax: one part of the weights keeps, the other forgets, each with its own view of sharpness."""

from __future__ import annotations

from app.jobs.params import SharpMinMax
from workers.methods.masks import forget_mask
from workers.methods.run import Run, take_steps
from workers.training.gradients import Differentiable
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy
from workers.training.optimiser import Sgd
from workers.training.sharpness import Sharpness, sharp_gradient
from workers.training.tally import Tally


def sharp_minmax(run: Run, parameters: SharpMinMax) -> Trace:
    """Tang & Khanna 2026 (arXiv 2506.13715), section 4, as the paper words it.

    The weights are split once, by the size of their forget gradient at the original network. A step then is

        keeping half:     min over w_R of  L + lambda * S(L)  for L = alpha * CE(R),
        forgetting half:  min over w_F of  L - lambda * S(L)  for L = -(1 - alpha) * CE(F),

    with S(L) = L(w + eps) - L(w), one after the other, each with its own momentum. Gradient and weight decay
    are masked together before they enter the momentum, so a half-step leaves the other half bit for bit as it
    was. (In the released code the forgetting step moves the keeping half too.) Running statistics follow the
    first pass on R, or nothing if `freeze_statistics`.
    """
    forgets = forget_mask(
        original := Differentiable(run.network),
        run.forget,
        fraction=parameters.mask_fraction,
        end=parameters.mask_end,
    )
    keeps = [~mask for mask in forgets]
    model = run.model(parameters.precision)
    model.passes = original.passes
    retain = run.retain_batches(parameters.retain_batch_size)
    forget = run.forget_batches(parameters.forget_batch_size)
    optimisers = tuple(
        Sgd(model.weights, momentum=parameters.momentum, weight_decay=parameters.weight_decay, mask=mask)
        for mask in (keeps, forgets)
    )
    keeper, forgetter = optimisers
    own = parameters.perturb == "own"

    def update(step: int, rate: float, tally: Tally) -> None:
        keeping = cross_entropy(
            retain.at(step),
            tally,
            "retain",
            moves_statistics=not parameters.freeze_statistics,
            scale=parameters.alpha,
        )
        keeper.step(sharp_gradient(model, keeping, sharpness(1), within=keeps if own else None), rate)
        forgetting = cross_entropy(
            forget.at(step), tally, "forget", moves_statistics=False, scale=parameters.alpha - 1
        )
        forgetter.step(
            sharp_gradient(model, forgetting, sharpness(-1), within=forgets if own else None), rate
        )

    def sharpness(sign: int) -> Sharpness:
        return Sharpness(
            rho=parameters.rho,
            adaptive=parameters.adaptive,
            weight=sign * parameters.sharpness_weight,
        )

    return take_steps(run, parameters, model=model, optimisers=optimisers, update=update)
