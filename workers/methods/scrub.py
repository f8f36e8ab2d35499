"""A student that leaves its teacher on the deleted rows and stays with it on the remaining ones."""

from __future__ import annotations

import copy
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import Scrub
from workers.data.batches import Rows
from workers.methods.run import Moves, Run, budget, take_steps
from workers.training.gradients import Differentiable, Forward, Loss
from workers.training.loop import Trace
from workers.training.objectives import objective_gradient
from workers.training.optimiser import optimiser
from workers.training.precision import autocast_dtype
from workers.training.tally import Tally

Kind = Literal["ascent", "descent"]


def scrub(run: Run, parameters: Scrub) -> Trace:
    """Kurmanji et al. 2023, section 3: by turns

        ascend on  KL(F)  over one pass of F,
        descend on  label_weight * CE(R) + teacher_weight * KL(R),

    where KL is the distance of the student's outputs from those of the original, frozen and in evaluation
    mode. The budget is cut into rounds, of which the first ones begin with an ascent; rounds of one pass over
    R each are the published schedule. Running statistics follow the batches of R only.
    """
    model = run.model(parameters.precision)
    retain = run.retain_batches(parameters.retain_batch_size)
    forget = run.forget_batches(parameters.forget_batch_size)
    plan = Rounds.of(parameters, descents=budget(parameters, retain), ascents=forget.steps_per_pass)
    teacher = Differentiable(
        copy.deepcopy(run.network).eval(), autocast=autocast_dtype(parameters.precision, run.retain.device)
    )
    descent = optimiser(parameters, model.weights)

    def update(step: int, rate: float, tally: Tally) -> None:
        kind, number = plan.at(step)
        batch = (forget if kind == "ascent" else retain).at(number)
        loss = _loss(teacher, batch, parameters, kind, tally)
        descent.step(objective_gradient(model, loss, parameters.objective), rate)

    return take_steps(
        run, parameters, Moves(model=model, optimisers=(descent,), update=update, steps=plan.steps)
    )


def _loss(teacher: Differentiable, batch: Rows, parameters: Scrub, kind: Kind, tally: Tally) -> Loss:
    with torch.no_grad():
        original = teacher.logits(batch.images, None, moves_statistics=True)

    def loss(forward: Forward) -> Tensor:
        logits = forward(batch.images, moves_statistics=kind == "descent")
        own = functional.cross_entropy(logits, batch.labels)
        if forward.first:
            tally.add("forget" if kind == "ascent" else "retain", logits, batch.labels, own)
        distance = soft_distance(original, logits, parameters.temperature)
        if kind == "ascent":
            return -distance
        return parameters.label_weight * own + parameters.teacher_weight * distance

    return loss


def soft_distance(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """T^2 * KL(softmax(teacher / T) || softmax(student / T)) of logits [B, K], the mean over the batch."""
    return temperature**2 * functional.kl_div(
        (student / temperature).log_softmax(1),
        (teacher / temperature).log_softmax(1),
        reduction="batchmean",
        log_target=True,
    )


@dataclass(frozen=True)
class Rounds:
    """Which kind every step is of, and its number among those of its kind."""

    starts: tuple[int, ...]
    kinds: tuple[Kind, ...]
    numbers: tuple[int, ...]  # of the first step of each part
    steps: int

    @classmethod
    def of(cls, parameters: Scrub, *, descents: int, ascents: int) -> Rounds:
        """So many descents in rounds of equal size, and so many ascents before each of the first ones."""
        starts: list[int] = []
        kinds: list[Kind] = []
        numbers: list[int] = []
        step = 0
        for place in range(parameters.rounds):
            first, end = (descents * turn // parameters.rounds for turn in (place, place + 1))
            parts: tuple[tuple[Kind, int, int], ...] = (
                ("ascent", place * ascents, ascents if place < parameters.ascent_rounds else 0),
                ("descent", first, end - first),
            )
            for kind, number, count in parts:
                if count:
                    starts.append(step)
                    kinds.append(kind)
                    numbers.append(number)
                    step += count
        return cls(tuple(starts), tuple(kinds), tuple(numbers), step)

    def at(self, step: int) -> tuple[Kind, int]:
        """The kind of this step, and how many of its kind came before it."""
        part = bisect_right(self.starts, step) - 1
        return self.kinds[part], self.numbers[part] + step - self.starts[part]
