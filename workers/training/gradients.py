"""Gradients of a loss at a network's weights, or at weights a small step away from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from workers.training import multi_tensor
from workers.training.batch_norm import TwiceDifferentiable


class Forward(Protocol):
    """One forward pass: float32 (or wider) logits of a batch."""

    @property
    def first(self) -> bool:
        """Whether it is the batch's first pass: running statistics and tallies follow that alone."""

    def __call__(self, inputs: Tensor, *, moves_statistics: bool = True) -> Tensor:
        """Logits [B, K]. Running statistics move in a first pass only, and only if they are told to."""


Loss = Callable[[Forward], Tensor]
Losses = Loss | Sequence[Loss]  # several add up; each is of a part of the batch


class Differentiable:
    """A network in whatever mode it is in, its weights as a list, and a count of the passes through it.

    A shifted pass puts other weights in the network's place for that pass alone (`functional_call`), and, if
    it is not the batch's first, copies of the running statistics. So there is nothing to restore afterwards:
    whatever happens in a second pass of SAM, the network's own weights and buffers were not touched.

    Layers that draw (dropout, stochastic depth) draw in a later pass what they drew in the first: otherwise
    the difference of the two gradients would be noise.
    """

    def __init__(self, network: nn.Module, *, autocast: torch.dtype | None = None) -> None:
        self.network = network
        self.names = [name for name, _ in network.named_parameters()]
        self.weights: list[Tensor] = list(network.parameters())
        self.passes = 0  # forward/backward passes, each over one batch
        self._autocast = autocast
        self._device = self.weights[0].device
        self._draws = _draws(self._device)

    def gradient(
        self, losses: Losses, shift: list[Tensor] | None = None, *, first: bool | None = None
    ) -> list[Tensor]:
        """The gradient of a loss at the network's weights, or at weights + shift; zeros where unused.

        Of several losses it is the sum's, taken one after the other, so that one graph at a time is held.

        `first`: whether it is the batch's first pass; without a word, whether nothing is shifted.
        """
        first = shift is None if first is None else first
        self._agree_on_draws(first=first)
        at = self.weights if shift is None else self._moved(shift)
        here = _Pass(self, None if shift is None else at, first)
        total: list[Tensor] = []
        for loss in _listed(losses):
            part = torch.autograd.grad(loss(here), at, allow_unused=True, materialize_grads=True)
            total = multi_tensor.add(total, list(part)) if total else list(part)
        return total

    def curved_gradient(
        self, losses: Losses, along: Callable[[list[Tensor]], list[Tensor]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The gradient g, and H v for the Hessian H and v = along(g), which is taken as constant.

        Of one loss by one graph, counted as 3 passes. Of several, g has to be known whole before any product
        with the Hessian: 4 passes each, with one graph at a time.

        Raises:
            RuntimeError: from PyTorch, if a layer has no second derivative.
        """
        several = _listed(losses)
        if len(several) == 1:
            self._agree_on_draws(first=True)
            slopes = self._slopes(several[0], first=True)
            gradient = [slope.detach() for slope in slopes]
            return gradient, self._bends(slopes, along(gradient))
        gradient = self.gradient(several)
        vector = along(gradient)
        self._agree_on_draws(first=False)
        parts = [self._bends(self._slopes(loss, first=False), vector) for loss in several]
        total = parts[0]
        for part in parts[1:]:
            multi_tensor.add_(total, part)
        return gradient, total

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """Within it, passes are computed in the weights' own precision."""
        autocast, self._autocast = self._autocast, None
        try:
            yield
        finally:
            self._autocast = autocast

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

    def _moved(self, shift: list[Tensor]) -> list[Tensor]:
        moved = multi_tensor.add([weight.detach() for weight in self.weights], shift)
        return [weight.requires_grad_() for weight in moved]

    def _slopes(self, loss: Loss, *, first: bool) -> list[Tensor]:
        """The gradient, in a graph of its own."""
        with sdpa_kernel(SDPBackend.MATH), TwiceDifferentiable():  # fused attention has no second derivative
            value = loss(_Pass(self, None, first))
        return list(
            torch.autograd.grad(
                value, self.weights, create_graph=True, allow_unused=True, materialize_grads=True
            )
        )

    def _bends(self, slopes: list[Tensor], vector: list[Tensor]) -> list[Tensor]:
        """The gradient of <slopes, vector>; where a weight is not used, nothing depends on it."""
        self.passes += 2  # what a backward pass through the gradient costs
        used = [place for place, slope in enumerate(slopes) if slope.requires_grad]
        return list(
            torch.autograd.grad(
                [slopes[place] for place in used],
                self.weights,
                [vector[place] for place in used],
                allow_unused=True,
                materialize_grads=True,
            )
        )

    def _agree_on_draws(self, *, first: bool) -> None:
        if first:
            self._draws = _draws(self._device)
        else:
            _draw_again(self._draws, self._device)


class _Pass:
    def __init__(self, model: Differentiable, weights: list[Tensor] | None, first: bool) -> None:
        self.first = first
        self._model = model
        self._weights = weights

    def __call__(self, inputs: Tensor, *, moves_statistics: bool = True) -> Tensor:
        moves = moves_statistics and self.first
        return self._model.logits(inputs, self._weights, moves_statistics=moves)


def _listed(losses: Losses) -> Sequence[Loss]:
    return [losses] if callable(losses) else losses


def _draws(device: torch.device) -> Tensor:
    """The state of the generator that layers draw from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _draw_again(state: Tensor, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
