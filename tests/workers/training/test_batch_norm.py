from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from workers.training.batch_norm import TwiceDifferentiable


def _double(*shape: int, seed: int, grad: bool = True) -> Tensor:
    drawn = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn.requires_grad_(grad)


def _ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    with TwiceDifferentiable():
        return functional.batch_norm(x, None, None, weight, bias, training=True)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2), (3, 2, 2, 3)])
def test_both_derivatives_are_those_of_finite_differences(shape: tuple[int, ...]) -> None:
    """Of values, statistics and affine parameters, for inputs of any number of dimensions."""
    channels = shape[1]
    given = (_double(*shape, seed=0), _double(channels, seed=1), _double(channels, seed=2))
    with torch.random.fork_rng():  # they draw
        assert torch.autograd.gradcheck(_ours, given)
        assert torch.autograd.gradgradcheck(_ours, given)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_values_gradients_and_curvature_are_those_of_pytorch(layout: torch.memory_format) -> None:
    """In float64, with running statistics; only what is asked for is differentiated."""
    with torch.random.fork_rng():
        layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 2)
    body = nn.Sequential(*layers)
    body = body.double().to(memory_format=layout)
    twin = copy.deepcopy(body)
    x = _double(5, 3, 6, 6, seed=3, grad=False).contiguous(memory_format=layout)

    def curved(network: nn.Module) -> list[Tensor]:
        weights = list(network.parameters())
        value = functional.cross_entropy(network(x), torch.tensor([0, 1, 0, 1, 1]))
        slopes = torch.autograd.grad(value, weights, create_graph=True)
        norm = torch.stack([slope.abs().sum() for slope in slopes]).sum()
        return [value, *slopes, *torch.autograd.grad(norm, weights)]

    with TwiceDifferentiable():
        ours = curved(body)
    for own, theirs in zip(ours, curved(twin), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-10, atol=1e-12)
    for own, theirs in zip(body.buffers(), twin.buffers(), strict=True):
        assert torch.equal(own, theirs)


def test_what_it_does_not_cover_is_left_to_pytorch() -> None:
    """Running statistics, and layers without affine parameters."""
    x = _double(4, 3, 2, 2, seed=4)
    for layer in (nn.BatchNorm2d(3).double().eval(), nn.BatchNorm2d(3, affine=False).double()):
        with TwiceDifferentiable():
            own = copy.deepcopy(layer)(x)
        assert torch.equal(own, layer(x))
        assert "_BatchNorm" not in str(own.grad_fn)
    with TwiceDifferentiable(), pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm2d(3).double()(x[:1, :, :1, :1])
