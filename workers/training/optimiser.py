"""Stochastic gradient descent over a whole network at once, or over some of its weights."""

from __future__ import annotations

import torch
from torch import Tensor

from workers.training import multi_tensor


class Sgd:
    """w <- w - rate * v, where v <- momentum * v + d and d = gradient + weight_decay * w.

    With Nesterov's rule the step is d + momentum * v instead of v (Sutskever et al. 2013), as in PyTorch's
    SGD. With a mask, d is zero outside it before it enters the momentum. So the momentum stays zero there,
    and the weights stay as they are to the last bit; weight decay would move them if only the gradient were
    masked.
    """

    def __init__(
        self,
        weights: list[Tensor],
        *,
        momentum: float,
        weight_decay: float,
        nesterov: bool = False,
        mask: list[Tensor] | None = None,
    ) -> None:
        self.velocity = [torch.zeros_like(weight) for weight in weights]
        self._weights = weights
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._nesterov = nesterov
        self._mask = mask

    @torch.no_grad()
    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        """Move the weights along `gradients`, one tensor a weight."""
        direction = multi_tensor.add(gradients, self._weights, self._weight_decay)
        if self._mask is not None:
            multi_tensor.multiply_(direction, self._mask)
        multi_tensor.multiply_(self.velocity, self._momentum)
        multi_tensor.add_(self.velocity, direction)
        if self._nesterov:
            multi_tensor.add_(direction, self.velocity, self._momentum)
        else:
            direction = self.velocity
        multi_tensor.add_(self._weights, direction, -learning_rate)
