"""Which weights the deleted rows pull at most."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from workers.data.batches import Rows, RowSource
from workers.training import multi_tensor
from workers.training.gradients import Differentiable, Forward

_BATCH_ROWS = 256


def forget_mask(
    model: Differentiable, forget: RowSource, *, fraction: float, end: Literal["top", "bottom"]
) -> list[Tensor]:
    """Mark the share of all weights whose summed forget gradient is largest (or smallest) in size.

    G = |sum over F of grad CE|: the signed gradients are added up first, over all of F, in evaluation mode
    and without augmentation, so the mask follows from the weights and the rows alone (Fan et al. 2023,
    section 4; Tang & Khanna 2026, section 4). `bottom` marks what the latter's released code marks.

    Args:
        model: the network at its original weights, computing in float32; left in evaluation mode.
        forget: the rows to forget.
        fraction: the share p in (0, 1).
        end: which end of the order.

    Returns:
        A bool tensor a weight, of the weight's shape.
    """
    sizes = [total.abs() for total in _summed_gradient(model, forget)]
    return extreme(sizes, fraction=fraction, largest=end == "top")


def extreme(sizes: list[Tensor], *, fraction: float, largest: bool) -> list[Tensor]:
    """Mark round(fraction * d) of all d elements, the largest or smallest in one order over all tensors.

    At least one element is marked and one is not. Which of several equal ones are marked is not said, but
    always the same.
    """
    flat = torch.cat([size.flatten() for size in sizes])
    count = min(max(1, round(fraction * len(flat))), len(flat) - 1)
    marked = torch.zeros_like(flat, dtype=torch.bool)
    marked[flat.topk(count, largest=largest, sorted=False).indices] = True
    parts = torch.split(marked, [size.numel() for size in sizes])
    return [part.view_as(size) for part, size in zip(parts, sizes, strict=True)]


def _summed_gradient(model: Differentiable, rows: RowSource) -> list[Tensor]:
    model.network.eval()
    total = [torch.zeros_like(weight) for weight in model.weights]
    for batch in rows.in_order(_BATCH_ROWS):

        def loss(forward: Forward, batch: Rows = batch) -> Tensor:
            return functional.cross_entropy(forward(batch.images), batch.labels, reduction="sum")

        multi_tensor.add_(total, model.gradient(loss))
    return total
