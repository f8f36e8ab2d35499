"""Batch normalisation whose second derivative takes a few passes over a batch; PyTorch's takes some twenty.

With x^ = (x - mean) r and r = 1 / sqrt(var + eps), over the n rows and places of a channel, the gradient is

    dx = gamma r (g - mean(g) - x^ mean(g x^)),   dgamma = sum(g x^),   dbeta = sum(g)

(Ioffe & Szegedy 2015, section 3). Its own derivative, given v, u and t for dx, dgamma and dbeta, is by g once
more that gradient, of v, and u x^ + t; by x it is a sum of v, g, x and 1, each by a factor of the channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Gradients = tuple[Tensor, Tensor, Tensor]
Statistics = tuple[Tensor, Tensor]  # a batch's mean and inverse deviation, float [C]


class TwiceDifferentiable(TorchFunctionMode):
    """Within it, batch normalisation by a batch's own statistics is what this module makes of it."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Any other function as it is."""
        del types
        given = kwargs or {}
        if func is functional.batch_norm:
            call = _Call(*args, **given)  # type: ignore[arg-type]
            several = call.input.numel() > call.input.shape[1]  # values of a channel: PyTorch refuses one
            if call.training and several and call.weight is not None and call.bias is not None:
                return _BatchNorm.apply(call.input, call.weight, call.bias, call)
        return func(*args, **given)


class _Call(NamedTuple):
    """What `torch.nn.functional.batch_norm` was given."""

    input: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5


class _Context(Protocol):
    eps: float
    statistics: Statistics
    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, weight: Tensor, bias: Tensor, call: _Call) -> Tensor:
        running = call.running_mean, call.running_var
        out, *statistics = torch.native_batch_norm(x, weight, bias, *running, True, call.momentum, call.eps)
        ctx.save_for_backward(x, weight)
        ctx.statistics, ctx.eps = (statistics[0], statistics[1]), call.eps
        return out

    @staticmethod
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor | None, ...]:
        return (*_Slope.apply(g, *ctx.saved_tensors, ctx.statistics, ctx.eps), None)


class _Slope(torch.autograd.Function):
    """dx, dgamma, dbeta. The statistics are x's own: what depends on them counts as x's."""

    @staticmethod
    def forward(
        ctx: _Context, g: Tensor, x: Tensor, weight: Tensor, statistics: Statistics, eps: float
    ) -> Gradients:
        slopes = _slopes(g, x, weight, statistics, eps)
        ctx.save_for_backward(g, x, weight, *slopes[1:])
        ctx.statistics, ctx.eps = statistics, eps
        return slopes

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, v: Tensor, u: Tensor, t: Tensor) -> tuple[Tensor | None, ...]:
        g, x, weight, g_x, g_sum = ctx.saved_tensors
        mean, r = ctx.statistics
        by_g, v_x, v_sum = _slopes(v, x, weight, ctx.statistics, ctx.eps)
        n = x.numel() / x.shape[1]
        b, d = v_x / n, g_x / n  # the means of v x^ and g x^
        s = (v * g).sum([axis for axis in range(x.dim()) if axis != 1]) - v_sum * g_sum / n - n * b * d
        steep = weight * r * r  # <v, dx> is gamma r s
        on_v = -steep * d
        on_g = u * r - steep * b
        on_x = (2 * steep * b * d - steep * s / n - u * r * d) * r
        level = -(on_v * v_sum + on_g * g_sum) / n - on_x * mean
        by_x = torch.addcmul(_wide(level, x), v, _wide(on_v, x))
        by_x.addcmul_(g, _wide(on_g, x)).addcmul_(x, _wide(on_x, x))
        by_g.addcmul_(x, _wide(u * r, x)).add_(_wide(t - u * r * mean, x))
        return by_g, by_x, r * s, None, None


def _slopes(g: Tensor, x: Tensor, weight: Tensor, statistics: Statistics, eps: float) -> Gradients:
    slopes: Gradients = torch.ops.aten.native_batch_norm_backward(
        g, x, weight, None, None, *statistics, True, eps, [True, True, True]
    )
    return slopes


def _wide(channels: Tensor, like: Tensor) -> Tensor:
    """One number a channel, as [1, C, 1, ...]."""
    return channels.view([1, -1] + [1] * (like.dim() - 2))
