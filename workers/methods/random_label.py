"""Teach the deleted rows labels drawn at random: by all weights, or by the salient ones alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import RandomLabel, SalUn
from workers.data.batches import Rows
from workers.data.seeds import generator
from workers.methods.masks import forget_mask
from workers.methods.run import Moves, Run, budget, take_steps
from workers.training.gradients import Differentiable, Forward
from workers.training.loop import Trace
from workers.training.objectives import cross_entropy, objective_gradient
from workers.training.optimiser import optimiser
from workers.training.tally import Tally


def random_label(run: Run, parameters: RandomLabel) -> Trace:
    """Descend on CE(R) + forget_weight * CE(F, drawn labels) (Golatkar et al. 2020, section 5)."""
    return _relabel(run, parameters, run.model(parameters.precision), mask=None)


def salun(run: Run, parameters: SalUn) -> Trace:
    """The same, moving the weights alone that F pulls at most: SalUn (Fan et al. 2024, section 4).

    The mask covers gradient and weight decay, so all other weights keep their bits.
    """
    original = Differentiable(run.network)
    mask = forget_mask(original, run.forget, fraction=parameters.mask_fraction, end=parameters.mask_end)
    model = run.model(parameters.precision)
    model.passes = original.passes
    run.keep_mask(model, mask)
    return _relabel(run, parameters, model, mask=mask)


def _relabel(run: Run, parameters: RandomLabel, model: Differentiable, *, mask: list[Tensor] | None) -> Trace:
    retain = run.retain_batches(parameters.retain_batch_size)
    forget = run.forget_batches(parameters.forget_batch_size)
    descent = optimiser(parameters, model.weights, mask)

    def update(step: int, rate: float, tally: Tally) -> None:
        keeping = cross_entropy(retain.at(step), tally, "retain")
        batch = forget.at(step)

        def loss(forward: Forward) -> Tensor:
            logits = forward(batch.images, moves_statistics=False)
            labels = drawn_labels(
                batch, logits.shape[1], parameters.labels, generator(run.seed, "labels", step)
            )
            if forward.first:
                own = functional.cross_entropy(logits.detach(), batch.labels)
                tally.add("forget", logits, batch.labels, own)
            return keeping(forward) + parameters.forget_weight * functional.cross_entropy(logits, labels)

        descent.step(objective_gradient(model, loss, parameters.objective), rate)

    steps = budget(parameters, retain)
    return take_steps(run, parameters, Moves(model=model, optimisers=(descent,), update=update, steps=steps))


def drawn_labels(batch: Rows, classes: int, among: str, draw: torch.Generator) -> Tensor:
    """A label for each row, int64 [B], uniformly among the `other` classes than its own, or `any`.

    Drawn anew for every batch: a label that stays would only be another thing to memorise.
    """
    if among == "any":
        return torch.randint(classes, batch.labels.shape, generator=draw).to(batch.labels.device)
    shifts = torch.randint(1, classes, batch.labels.shape, generator=draw).to(batch.labels.device)
    return (batch.labels + shifts) % classes
