"""Sharp MinMax: one part of the weights keeps, the other forgets, each with its own view of sharpness."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from app.jobs.params import SharpMinMax
from workers.methods.masks import forget_mask
from workers.methods.run import Moves, Run, budget, take_steps
from workers.training.gradients import Differentiable, Loss
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy
from workers.training.optimiser import Optimiser, optimiser
from workers.training.sharpness import Sharpness, momentum_gradient, sharp_gradient
from workers.training.tally import Tally


def sharp_minmax(run: Run, parameters: SharpMinMax) -> Trace:
    """Tang & Khanna 2026 (arXiv 2506.13715), section 4, and what was found to make it better.

    The weights are split once, by the size of their forget gradient at the original network. A step then is

        keeping half:     min over w_R of  L + lambda * S(L)  for L = alpha * CE(R),
        forgetting half:  min over w_F of  L - lambda * S(L)  for L = -(1 - alpha) * CE(F),

    with S(L) = L(w + eps) - L(w), one after the other, each with its own optimiser. Gradient and weight decay
    are masked together before they enter the momentum, so a half-step leaves the other half bit for bit as it
    was. Running statistics follow the first pass on R, or nothing if `freeze_statistics`.

    Ours: with `keeps` all, the keeping step moves w_F too, and repairs there what forgetting broke. With
    `ascent` momentum, eps follows the half's momentum, and a half-step is one pass instead of two. With
    `ceiling` unseen, no row of F is pushed beyond what an unseen row of its class would lose. The paper's
    method is `keeps` rest, `ascent` gradient and `ceiling` none.

    `as_released` does what the released code does, for comparison: the smallest forget gradients are marked;
    the mask covers the perturbed gradient alone, so that the forgetting step (2g - m * g_eps) moves every
    weight, as decay and momentum do in both steps; all weights are perturbed; batches of F move running
    statistics too.
    """
    released = parameters.as_released
    if released:
        parameters = replace(
            parameters, mask_end="bottom", perturb="all", keeps="rest", ascent="gradient", ceiling="none"
        )
    original = Differentiable(run.network)
    forgets = forget_mask(original, run.forget, fraction=parameters.mask_fraction, end=parameters.mask_end)
    model = run.model(parameters.precision)
    model.passes = original.passes
    run.keep_mask(model, forgets)
    keeps = [torch.ones_like(mask) if parameters.keeps == "all" else ~mask for mask in forgets]
    keeper, forgetter = (
        optimiser(parameters, model.weights, None if released else mask) for mask in (keeps, forgets)
    )
    retain = run.retain_batches(parameters.retain_batch_size)
    forget = run.forget_batches(parameters.forget_batch_size)
    aim = run.counterfactual(parameters.precision) if parameters.ceiling == "unseen" else None
    # AdamW takes gradients of any length alike: there the halves are weighed by their rates.
    shares = (parameters.alpha, 1 - parameters.alpha) if parameters.optimiser == "adamw" else (1.0, 1.0)

    def update(step: int, rate: float, tally: Tally) -> None:
        keeping = cross_entropy(
            retain.at(step),
            tally,
            "retain",
            moves_statistics=not parameters.freeze_statistics,
            scale=parameters.alpha,
        )
        keeper.step(sharp(keeping, 1, keeper, keeps), rate * shares[0])
        forgetting = cross_entropy(
            forget.at(step),
            tally,
            "forget",
            moves_statistics=released,
            scale=parameters.alpha - 1,
            below=None if aim is None else aim.losses[forget.places(step)],
        )
        forgetter.step(sharp(forgetting, -1, forgetter, forgets), rate * shares[1])

    def sharp(loss: Loss, sign: int, half: Optimiser, mask: list[Tensor]) -> list[Tensor]:
        """The gradient of a half's loss and its sharpness, which is minimised (1) or maximised (-1)."""
        sharpness = Sharpness(
            rho=parameters.rho, adaptive=parameters.adaptive, weight=sign * parameters.sharpness_weight
        )
        if parameters.ascent == "momentum":
            return momentum_gradient(model, loss, sharpness, half.momentum)
        within = mask if parameters.perturb == "own" else None
        return sharp_gradient(model, loss, sharpness, within, mask if released else None)

    steps = budget(parameters, retain)
    moves = Moves(model=model, optimisers=(keeper, forgetter), update=update, steps=steps, aim=aim)
    return take_steps(run, parameters, moves)
