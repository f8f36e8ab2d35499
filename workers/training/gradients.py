"""Gradients of a loss at a network's weights, or at weights a small step away from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from workers.training import multi_tensor


class Forward(Protocol):
    """One forward pass: float32 (or wider) logits of a batch."""

    @property
    def first(self) -> bool:
        """Whether it is the batch's first pass: running statistics and tallies follow that alone."""

    def __call__(self, inputs: Tensor, *, moves_statistics: bool = True) -> Tensor:
        """Logits [B, K]. Running statistics move in a first pass only, and only if they are told to."""


Loss = Callable[[Forward], Tensor]


class Differentiable:
    """A network in whatever mode it is in, its weights as a list, and a count of the passes through it.

    A shifted pass puts other weights in the network's place for that pass alone (`functional_call`), and, if
    it is not the batch's first, copies of the running statistics. So there is nothing to restore afterwards:
    whatever happens in a second pass of SAM, the network's own weights and buffers were not touched.
    """

    def __init__(self, network: nn.Module, *, autocast: torch.dtype | None = None) -> None:
        self.network = network
        self.names = [name for name, _ in network.named_parameters()]
        self.weights: list[Tensor] = list(network.parameters())
        self.passes = 0  # forward/backward passes, each over one batch
        self._autocast = autocast

    def gradient(
        self, loss: Loss, shift: list[Tensor] | None = None, *, first: bool | None = None
    ) -> list[Tensor]:
        """The gradient of `loss` at the network's weights, or at weights + shift; zeros where unused.

        `first`: whether it is the batch's first pass; without a word, whether nothing is shifted.
        """
        first = shift is None if first is None else first
        if shift is None:
            at, value = self.weights, loss(_Pass(self, None, first))
        else:
            moved = multi_tensor.add([weight.detach() for weight in self.weights], shift)
            at = [weight.requires_grad_() for weight in moved]
            value = loss(_Pass(self, at, first))
        return list(torch.autograd.grad(value, at, allow_unused=True, materialize_grads=True))

    def logits(self, inputs: Tensor, weights: list[Tensor] | None, *, moves_statistics: bool) -> Tensor:
        """One counted forward pass, at the network's own weights if `weights` is None."""
        self.passes += 1
        with torch.autocast(inputs.device.type, self._autocast, enabled=self._autocast is not None):
            if weights is None and moves_statistics:
                logits: Tensor = self.network(inputs)
            else:
                stand_ins = dict(zip(self.names, weights or self.weights, strict=True))
                if not moves_statistics:
                    stand_ins |= {name: buffer.clone() for name, buffer in self.network.named_buffers()}
                logits = functional_call(self.network, stand_ins, (inputs,))
        return logits.float() if logits.dtype == torch.bfloat16 else logits


class _Pass:
    def __init__(self, model: Differentiable, weights: list[Tensor] | None, first: bool) -> None:
        self.first = first
        self._model = model
        self._weights = weights

    def __call__(self, inputs: Tensor, *, moves_statistics: bool = True) -> Tensor:
        moves = moves_statistics and self.first
        return self._model.logits(inputs, self._weights, moves_statistics=moves)
