"""Gradient sparsity: descend on a loss and on a norm of its own gradient, so that unlearning is easy later.

J(w) = L(w) + rho * |g(w)| with g the gradient of L on a batch. Its gradient is g + rho * H s, where s is the
norm's own derivative: sign(g) for l1, g / |g| for l2, the sign of the largest entry for linf. The l1 form is
that of the gradient-sparsity paper (ECCV 2026), the l2 form that of Zhao et al. 2022 (arXiv 2202.03599).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from app.jobs.params import GradientSparsity
from workers.training import multi_tensor
from workers.training.gradients import Differentiable, Forward, Loss
from workers.training.tally import Tally

Norm = Literal["l1", "l2", "linf"]

_TINY = 1e-12
_HELD = (0.8, 1.5)  # where the check has to be for the small step to be small enough
_EASY = (0.95, 1.05)  # where the loss is so straight that the step may be longer
_SHORTER, _LONGER, _MOST = 0.5, 1.25, 10.0  # the last times what it began with


def norm_and_direction(gradients: list[Tensor], norm: Norm) -> tuple[Tensor, list[Tensor]]:
    """A norm of all gradients together, and its own derivative by them: a subgradient where it has a kink."""
    match norm:
        case "l1":
            signs = multi_tensor.sign(gradients)
            return multi_tensor.total(multi_tensor.magnitude(gradients)), signs
        case "l2":
            length = multi_tensor.norm(gradients)
            return length, multi_tensor.multiply(gradients, 1 / (length + _TINY))
        case "linf":
            return _largest(gradients)


def group_masks(
    model: Differentiable, group: Literal["all", "matrices", "body", "head"]
) -> list[Tensor] | None:
    """1 for weights whose gradient is penalised, 0 for the others, one number a tensor; None for all."""
    if group == "all":
        return None
    last = model.names[-1].rpartition(".")[0]
    chosen = {
        "matrices": [weight.dim() > 1 for weight in model.weights],
        "head": [name.rpartition(".")[0] == last for name in model.names],
        "body": [name.rpartition(".")[0] != last for name in model.names],
    }[group]
    return [weight.new_full((), float(one)) for one, weight in zip(chosen, model.weights, strict=True)]


class SparseDescent:
    """The gradients of the steps, and the length of the small step, which checkpoints hold.

    What an epoch came to is told the tally: `gradient_norm`, `epsilon` (what s was multiplied by), and
    `check`, the rise of the loss over the small step against what the gradient foretells, epsilon * norm:
    1 where the loss is straight, more where it bends.
    """

    def __init__(
        self, model: Differentiable, objective: GradientSparsity, tally: Tally, *, window: int
    ) -> None:
        """`window`: the steps of an epoch, after which an automatic step is adapted."""
        self._model = model
        self._objective = objective
        self._tally = tally
        self._window = window
        self._group = group_masks(model, objective.group)
        like = model.weights[0]
        self._share = torch.full((), objective.epsilon, dtype=like.dtype, device=like.device)
        self._checks: list[Tensor] = []  # of the epoch so far

    @property
    def state(self) -> Mapping[str, Tensor]:
        """What the next step depends on besides weights and optimiser."""
        return {"epsilon": self._share}

    def gradient(self, losses: Sequence[Loss], step: int) -> list[Tensor]:
        """What step `step`, counted from 0, descends along; the losses add up to the batch's."""
        rho = self._objective.rho * self._objective.every
        if rho == 0 or step % self._objective.every:
            gradients = self._model.gradient(losses)
        else:
            with self._model.full_precision():
                exact = self._objective.form == "exact"
                gradients = (self._exact if exact else self._finite_difference)(losses, rho)
        if (step + 1) % self._window == 0:
            self._adapt()
        return gradients

    def _exact(self, losses: Sequence[Loss], rho: float) -> list[Tensor]:
        """g + rho * H s."""

        def along(gradients: list[Tensor]) -> list[Tensor]:
            norm, direction = norm_and_direction(self._penalised(gradients), self._objective.norm)
            self._tally.note("gradient_norm", norm)
            return direction

        gradient, bend = self._model.curved_gradient(losses, along)
        return multi_tensor.add(gradient, bend, rho)

    def _finite_difference(self, losses: Sequence[Loss], rho: float) -> list[Tensor]:
        """(1 - rho / epsilon) * g(w) + (rho / epsilon) * g(w + epsilon * s)."""
        values: list[Tensor] = []
        heard = [_heard(loss, values) for loss in losses]
        own = self._model.gradient(heard)
        norm, direction = norm_and_direction(self._penalised(own), self._objective.norm)
        epsilon = self._epsilon(direction)
        away = self._model.gradient(heard, multi_tensor.multiply(direction, epsilon))
        before, after = (torch.stack(part).sum() for part in (values[: len(losses)], values[len(losses) :]))
        self._checks.append((after - before) / (epsilon * norm + _TINY))
        for name, value in (("gradient_norm", norm), ("epsilon", epsilon), ("check", self._checks[-1])):
            self._tally.note(name, value)
        difference = multi_tensor.add(away, own, -1)
        return multi_tensor.add(own, multi_tensor.multiply(difference, rho / epsilon))

    def _epsilon(self, direction: list[Tensor]) -> Tensor:
        """What the direction is multiplied by."""
        if self._objective.epsilon_unit == "absolute":
            return self._share
        weights = multi_tensor.norm([weight.detach() for weight in self._model.weights])
        return self._share * weights / (multi_tensor.norm(direction) + _TINY)

    def _penalised(self, gradients: list[Tensor]) -> list[Tensor]:
        return gradients if self._group is None else multi_tensor.multiply(gradients, self._group)

    def _adapt(self) -> None:
        """Halve an automatic step that went where the loss bends; raise one that saw no bend at all.

        On the device: nothing waits for what the checks came to. It grows to ten times its beginning at most.
        """
        checks, self._checks = self._checks, []
        if not checks or self._objective.epsilon_unit != "automatic":
            return
        mean = torch.stack(checks).mean()
        held = (mean >= _HELD[0]) & (mean <= _HELD[1])
        easy = (mean >= _EASY[0]) & (mean <= _EASY[1])
        self._share *= torch.where(held, torch.where(easy, _LONGER, 1.0), _SHORTER)
        self._share.clamp_(max=_MOST * self._objective.epsilon)


def _largest(gradients: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The largest size of all entries, and its sign at its place (the first, of several), zeros elsewhere."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    place = flat.abs().argmax()
    one = torch.zeros_like(flat).scatter(0, place[None], flat[place].sign()[None])
    parts = torch.split(one, [gradient.numel() for gradient in gradients])
    shaped = [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
    return flat[place].abs(), shaped


def _heard(loss: Loss, values: list[Tensor]) -> Loss:
    """`loss`, whose values are noted as it is evaluated."""

    def noting(forward: Forward) -> Tensor:
        value = loss(forward)
        values.append(value.detach())
        return value

    return noting
