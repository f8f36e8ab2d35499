from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from workers.data.batches import Rows
from workers.methods.curvature import (
    MeanLoss,
    NoStep,
    Progress,
    Sample,
    TooLarge,
    available_bytes,
    move,
    refuse_unless_fits,
)
from workers.monitor import Silent
from workers.nets.network import Network
from workers.training.gradients import Differentiable

_CPU = torch.device("cpu")


class _Attention(nn.Module):
    """Each image's pixel rows look at each other; two classes."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.mix = nn.Parameter(torch.randn(3, 8, 4, generator=draw, dtype=torch.float64))
        self.end = nn.Parameter(torch.randn(4, 2, generator=draw, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        rows = images[:, 0].double() / 255  # [B, 8, 8]
        asked, offered, told = (rows @ part for part in self.mix)
        return functional.scaled_dot_product_attention(asked, offered, told).mean(1) @ self.end


class _HardSigmoid(nn.Module):
    """As the gates of MobileNetV3."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 10, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return functional.hardsigmoid(images.flatten(1).double() @ self.weight)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum")


def _loss(network: nn.Module, *, weight_decay: float = 0.0) -> MeanLoss:
    return MeanLoss(
        Differentiable(network), _cross_entropy, weight_decay=weight_decay, progress=Progress(Silent(), 0)
    )


def _all_at_once(network: nn.Module, rows: Rows) -> tuple[Tensor, Tensor]:
    """The gradient and the Hessian of the mean cross-entropy plus 0.05 |w|^2 by torch.func, in one piece."""
    names = [name for name, _ in network.named_parameters()]
    shapes = [weight.shape for weight in network.parameters()]

    def value(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [shape.numel() for shape in shapes])
        weights = {n: part.view(s) for n, part, s in zip(names, parts, shapes, strict=True)}
        logits = functional_call(network, weights, (rows.images,))
        return functional.cross_entropy(logits, rows.labels) + 0.05 * flat.square().sum()

    at = parameters_to_vector(network.parameters()).detach()
    return jacrev(value)(at), jacrev(jacrev(value))(at)


def test_gradient_and_hessian_are_those_of_the_mean_loss(two_layers: Network, digits: Rows) -> None:
    """Several batches and many columns at a time add up to what torch.func finds in one piece."""
    loss = _loss(two_layers, weight_decay=0.1)
    gradient, whole = _all_at_once(two_layers, digits)
    torch.testing.assert_close(loss.gradient(Sample(digits)), gradient, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(loss.hessian(Sample(digits)), whole, rtol=1e-9, atol=1e-12)


def test_a_product_is_that_of_the_hessian(two_layers: Network, digits: Rows) -> None:
    """One vector or several at once, over some of the rows."""
    places = torch.tensor([3, 50, 70, 141])
    vectors = torch.randn(2, 460, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    _, whole = _all_at_once(two_layers, digits.take(places))
    loss, sample = _loss(two_layers, weight_decay=0.1), Sample(digits, places)
    torch.testing.assert_close(loss.product(sample, vectors), vectors @ whole, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss.product(sample, vectors[0]), whole @ vectors[0], rtol=1e-9, atol=1e-12)


def test_attention_is_differentiated_twice(digits: Rows) -> None:
    """Fused attention is not: the product agrees with a difference of gradients of the network as it is."""
    network = _Attention()
    rows = Rows(digits.images, digits.labels % 2)
    vector = torch.randn(104, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def gradient(shift: Tensor) -> Tensor:
        shifted = Differentiable(_Attention())
        move(shifted, shift)
        parts = shifted.gradient(lambda forward: functional.cross_entropy(forward(rows.images), rows.labels))
        return torch.cat([part.flatten() for part in parts])

    difference = (gradient(1e-5 * vector) - gradient(-1e-5 * vector)) / 2e-5
    product = _loss(network).product(Sample(rows), vector)
    torch.testing.assert_close(product, difference, rtol=1e-6, atol=1e-9)


def test_a_network_without_second_derivative_is_refused(digits: Rows) -> None:
    """PyTorch has none of hardsigmoid: the caller is told so."""
    with pytest.raises(NoStep, match="second derivative"):
        _loss(_HardSigmoid()).product(Sample(digits), torch.ones(640, dtype=torch.float64))


def test_a_sample_is_drawn_without_replacement(digits: Rows) -> None:
    """So many different rows, the same for a seed, others for another; all rows if there are no more."""
    numbered = Rows(digits.images, torch.arange(160))

    def drawn(most: int, seed: int) -> list[int]:
        sample = Sample.drawn(numbered, most, seed)
        batches = [batch.labels for batch in sample.batches(7)]
        assert len(batches) == sample.count_batches(7)
        return torch.cat(batches).tolist()

    first = drawn(50, 1)
    assert len(set(first)) == len(first) == 50
    assert first == drawn(50, 1) != drawn(50, 2)
    assert drawn(160, 1) == drawn(4096, 1) == list(range(160))


def test_a_step_that_is_not_finite_is_not_taken(two_layers: Network) -> None:
    """The weights stay as they are."""
    before = parameters_to_vector(two_layers.parameters()).detach().clone()
    with pytest.raises(NoStep, match="not finite"):
        move(Differentiable(two_layers), torch.full_like(before, torch.inf))
    assert torch.equal(parameters_to_vector(two_layers.parameters()), before)


def test_what_does_not_fit_is_refused_with_both_sizes() -> None:
    """And what fits is let pass."""
    with pytest.raises(TooLarge, match=r"the Hessian needs 1000000\.0 GB of memory; \d+\.\d GB are"):
        refuse_unless_fits("the Hessian", 10**15, _CPU)
    refuse_unless_fits("the Hessian", 1000, _CPU)


def test_available_is_some_of_the_machines_memory() -> None:
    """In bytes, and not more than the machine has."""
    assert 2**20 < available_bytes(_CPU) <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
