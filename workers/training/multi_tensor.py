"""Arithmetic on all tensors of a network at once: one call and few GPU kernels instead of one a tensor.

PyTorch's own optimisers are built on these functions, which it offers under no public name: hence one place
for them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def add(first: list[Tensor], second: list[Tensor], scale: float = 1.0) -> list[Tensor]:
    """first + scale * second."""
    return list(torch._foreach_add(first, second, alpha=scale))  # noqa: SLF001


def add_(target: list[Tensor], other: list[Tensor], scale: float = 1.0) -> None:
    """target += scale * other."""
    torch._foreach_add_(target, other, alpha=scale)


def multiply(first: list[Tensor], second: list[Tensor] | Tensor) -> list[Tensor]:
    """first * second, tensor by tensor or by one number on the device."""
    return list(torch._foreach_mul(first, second))  # noqa: SLF001


def multiply_(target: list[Tensor], factor: list[Tensor] | float) -> None:
    """target *= factor."""
    torch._foreach_mul_(target, factor)


def interpolate(start: list[Tensor], end: list[Tensor], weight: float) -> list[Tensor]:
    """start + weight * (end - start): `end` itself, to the last bit, at 1; beyond it above 1."""
    return list(torch._foreach_lerp(start, end, weight))  # noqa: SLF001


def interpolate_(target: list[Tensor], end: list[Tensor], weight: float) -> None:
    """target += weight * (end - target)."""
    torch._foreach_lerp_(target, end, weight)


def square_root(tensors: list[Tensor], divisor: float) -> list[Tensor]:
    """sqrt(t / divisor), element by element."""
    return list(torch._foreach_sqrt(torch._foreach_div(tensors, divisor)))  # noqa: SLF001


def divide(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
    """first / second, element by element."""
    return list(torch._foreach_div(first, second))  # noqa: SLF001


def sign(tensors: list[Tensor]) -> list[Tensor]:
    """-1, 0 or 1, element by element."""
    return list(torch._foreach_sign(tensors))  # noqa: SLF001


def copy_(target: list[Tensor], source: list[Tensor]) -> None:
    """target = source, in place."""
    torch._foreach_copy_(target, source)


def magnitude(tensors: list[Tensor]) -> list[Tensor]:
    """|t|, element by element."""
    return list(torch._foreach_abs(tensors))  # noqa: SLF001


def norm(tensors: list[Tensor]) -> Tensor:
    """The Euclidean norm of all elements of all tensors together, a number on the device."""
    lengths = torch.stack(torch._foreach_norm(tensors))  # noqa: SLF001
    return lengths.square().sum().sqrt()


def total(tensors: list[Tensor]) -> Tensor:
    """The sum of all elements of all tensors together, a number on the device."""
    return torch.stack([tensor.sum() for tensor in tensors]).sum()
