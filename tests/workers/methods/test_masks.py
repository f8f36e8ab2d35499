from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from workers.data.batches import Rows, RowSource
from workers.methods.masks import extreme, forget_mask
from workers.methods.run import Run
from workers.nets.network import Network
from workers.training.gradients import Differentiable

SIZES = [0.9, 0.01, 0.5, 0.02, 0.7, 0.03, 0.04, 0.05, 0.06, 0.8]


def _places(masks: list[Tensor]) -> list[int]:
    return torch.cat([mask.flatten() for mask in masks]).nonzero().flatten().tolist()


def _mask(
    network: Network, rows: RowSource, end: Literal["top", "bottom"] = "top", fraction: float = 0.1
) -> list[Tensor]:
    return forget_mask(Differentiable(network), rows, fraction=fraction, end=end)


def test_the_worked_case() -> None:
    """Of ten sizes over two tensors, the top 30% are at 0, 4, 9; the released code marked 1, 3, 5."""
    sizes = [torch.tensor(SIZES[:6]).view(2, 3), torch.tensor(SIZES[6:])]
    assert _places(extreme(sizes, fraction=0.3, largest=True)) == [0, 4, 9]
    assert _places(extreme(sizes, fraction=0.3, largest=False)) == [1, 3, 5]
    assert [mask.shape for mask in extreme(sizes, fraction=0.3, largest=True)] == [(2, 3), (4,)]


@pytest.mark.parametrize(("fraction", "count"), [(0.3, 3), (0.25, 2), (0.001, 1), (0.999, 9)])
def test_the_share_is_the_asked_one(fraction: float, count: int) -> None:
    """round(p d) elements are marked, but at least one and not all; equal sizes do not change that."""
    for sizes in (SIZES, [0.0] * 10):
        assert len(_places(extreme([torch.tensor(sizes)], fraction=fraction, largest=True))) == count


@pytest.mark.parametrize("end", ["top", "bottom"])
def test_the_order_is_that_of_the_summed_forget_gradient(
    start: Callable[..., Run], end: Literal["top", "bottom"]
) -> None:
    """Every marked weight has a larger (or smaller) |sum of gradients| than any other of the network."""
    run = start()
    run.network.eval()
    forget = run.forget.take(slice(None))
    total = functional.cross_entropy(run.network(forget.images), forget.labels, reduction="sum")
    sizes = torch.cat(
        [part.abs().flatten() for part in torch.autograd.grad(total, list(run.network.parameters()))]
    )
    marked = torch.cat([mask.flatten() for mask in _mask(run.network, run.forget, end)])
    assert marked.dtype == torch.bool
    assert int(marked.sum()) == round(0.1 * len(sizes))
    inside, outside = sizes[marked], sizes[~marked]
    slack = 1e-5 * sizes.max()
    if end == "top":
        assert inside.min() >= outside.max() - slack
    else:
        assert inside.max() <= outside.min() + slack


def test_signed_gradients_are_summed_before_their_size_is_taken(two_layers: Network, digits: Rows) -> None:
    """The mask of many batches is that of the brute sum over all rows at once, not of sums of sizes."""
    rows = Rows(digits.images.repeat(4, 1, 1, 1), digits.labels.repeat(4))  # 640 rows: three batches
    total = functional.cross_entropy(two_layers(rows.images), rows.labels, reduction="sum")
    gradient = torch.cat(
        [part.flatten() for part in torch.autograd.grad(total, list(two_layers.parameters()))]
    )
    expected = gradient.abs().argsort(descending=True)[: round(0.3 * len(gradient))].sort().values
    assert _places(_mask(two_layers, rows, fraction=0.3)) == expected.tolist()


def test_marking_changes_nothing_and_is_the_same_again(start: Callable[..., Run]) -> None:
    """Weights and running statistics stay as they are, and the same network gives the same mask."""
    run = start()
    before = {name: tensor.clone() for name, tensor in run.network.state_dict().items()}
    first, second = _mask(run.network, run.forget), _mask(run.network.train(), run.forget)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.network.state_dict().items())
