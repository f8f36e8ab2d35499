"""What turns gradients into steps, over a whole network at once or over some of its weights."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from app.jobs.params import Steps, TrainingRecipe
from workers.training import multi_tensor

_EPSILON = 1e-8


class Optimiser(Protocol):
    """Moves weights along gradients; with a mask those outside it keep their bits."""

    @property
    def state(self) -> list[Tensor]:
        """Every tensor that the next step depends on, in an order that does not change."""

    @property
    def momentum(self) -> list[Tensor]:
        """The direction of the gradients so far, one tensor a weight: zeros before the first step."""

    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        """Move the weights along `gradients`, one tensor a weight, which are left as they are."""


class Sgd:
    """w <- w - rate * v, where v <- momentum * v + d and d = gradient + weight_decay * w.

    With Nesterov's rule the step is d + momentum * v instead of v (Sutskever et al. 2013), as in PyTorch's
    SGD. With a mask, d is zero outside it before it enters the momentum. So the momentum stays zero there,
    and the weights stay as they are to the last bit; weight decay would move them if only the gradient were
    masked. `clip_norm` bounds the gradient's length, within the mask, before the decay is added.
    """

    def __init__(
        self,
        weights: list[Tensor],
        *,
        momentum: float,
        weight_decay: float,
        nesterov: bool = False,
        mask: list[Tensor] | None = None,
        clip_norm: float | None = None,
    ) -> None:
        self.momentum = [torch.zeros_like(weight) for weight in weights]
        self._weights = weights
        self._decay = momentum
        self._weight_decay = weight_decay
        self._nesterov = nesterov
        self._mask = mask
        self._clip_norm = clip_norm

    @property
    def state(self) -> list[Tensor]:
        return self.momentum

    @torch.no_grad()
    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        gradients = _clipped(gradients, self._mask, self._clip_norm)
        direction = multi_tensor.add(gradients, self._weights, self._weight_decay)
        if self._mask is not None:
            multi_tensor.multiply_(direction, self._mask)
        multi_tensor.multiply_(self.momentum, self._decay)
        multi_tensor.add_(self.momentum, direction)
        if self._nesterov:
            multi_tensor.add_(direction, self.momentum, self._decay)
        else:
            direction = self.momentum
        multi_tensor.add_(self._weights, direction, -learning_rate)


class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), as in PyTorch's AdamW.

    Mask and `clip_norm` as for SGD: outside the mask both means stay zero, and nothing decays. Multiplying
    all gradients by a number changes nothing, so whoever weighs losses against each other in separate steps
    has to weigh the learning rate.
    """

    def __init__(
        self,
        weights: list[Tensor],
        *,
        momentum: float,
        second_momentum: float,
        weight_decay: float,
        mask: list[Tensor] | None = None,
        clip_norm: float | None = None,
    ) -> None:
        self.momentum = [torch.zeros_like(weight) for weight in weights]
        self._square = [torch.zeros_like(weight) for weight in weights]
        self._steps = torch.zeros((), dtype=torch.int64)  # on the host: nothing waits for the device
        self._weights = weights
        self._decays = momentum, second_momentum
        self._weight_decay = weight_decay
        self._mask = mask
        self._clip_norm = clip_norm

    @property
    def state(self) -> list[Tensor]:
        return [*self.momentum, *self._square, self._steps]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        gradients = _clipped(gradients, self._mask, self._clip_norm)
        if self._mask is not None:
            gradients = multi_tensor.multiply(gradients, self._mask)
        self._steps += 1
        first, second = self._decays
        taken = int(self._steps)
        multi_tensor.interpolate_(self.momentum, gradients, 1 - first)
        multi_tensor.interpolate_(self._square, multi_tensor.multiply(gradients, gradients), 1 - second)
        self._decay(learning_rate)
        lengths = multi_tensor.square_root(self._square, 1 - second**taken)
        multi_tensor.add_(lengths, [torch.full_like(length, _EPSILON) for length in lengths])
        multi_tensor.add_(
            self._weights, multi_tensor.divide(self.momentum, lengths), -learning_rate / (1 - first**taken)
        )

    def _decay(self, learning_rate: float) -> None:
        fading = self._weights
        if self._mask is not None:
            fading = multi_tensor.multiply(self._weights, self._mask)
        multi_tensor.add_(self._weights, fading, -learning_rate * self._weight_decay)


def optimiser(
    named: Steps | TrainingRecipe, weights: list[Tensor], mask: list[Tensor] | None = None
) -> Optimiser:
    """The optimiser that a method's parameters or a recipe name, at rest; with a mask it moves that alone."""
    if named.optimiser == "adamw":
        return AdamW(
            weights,
            momentum=named.momentum,
            second_momentum=named.second_momentum,
            weight_decay=named.weight_decay,
            mask=mask,
            clip_norm=named.clip_norm,
        )
    return Sgd(
        weights,
        momentum=named.momentum,
        weight_decay=named.weight_decay,
        nesterov=isinstance(named, TrainingRecipe) and named.nesterov,
        mask=mask,
        clip_norm=named.clip_norm,
    )


def _clipped(gradients: list[Tensor], mask: list[Tensor] | None, limit: float | None) -> list[Tensor]:
    """The gradients, shortened so that their length within the mask is `limit` at most."""
    if limit is None:
        return gradients
    length = multi_tensor.norm(gradients if mask is None else multi_tensor.multiply(gradients, mask))
    return multi_tensor.multiply(gradients, (limit / length.clamp(min=1e-12)).clamp(max=1.0))
