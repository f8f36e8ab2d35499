from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import nn

from app.jobs.params import BuiltIn
from workers.data.batches import Rows
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.evaluate import evaluate
from workers.training.observe import Noise, observe


@pytest.fixture
def network() -> Network:
    return build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))


@pytest.fixture
def echo() -> Network:
    """A network whose logits are the very pixels that it is given."""
    return Network(lambda _: nn.Flatten(), 1, torch.Generator())


@pytest.fixture
def grey() -> Rows:
    """Images of one grey, over more rows than a batch holds."""
    images = torch.full((150, 1, 8, 8), 128, dtype=torch.uint8)
    return Rows(images, torch.zeros(150, dtype=torch.int64))


def test_logits_are_those_of_an_evaluation(network: Network, digits: Rows) -> None:
    """Bit for bit, in float64, with the labels beside them; and training mode does not matter."""
    seen = observe(network.train(), digits)
    assert seen.labels.tolist() == digits.labels.tolist()
    assert seen.logits.dtype == np.dtype(np.float64)
    assert np.array_equal(seen.logits, evaluate(network, digits).double().numpy())


def test_features_are_of_the_same_pass(network: Network, digits: Rows) -> None:
    """The last layer makes these logits of them, row by row, noise or not."""
    head = network.body.get_submodule("classifier")
    assert isinstance(head, nn.Linear)
    for noise in (None, Noise(0.05, seed=1)):
        seen = observe(network, digits, noise=noise)
        assert seen.features is not None
        assert seen.features.shape == (160, head.in_features)
        assert seen.features.dtype == np.dtype(np.float64)
        weight, bias = (each.detach().double().numpy() for each in (head.weight, head.bias))
        assert_allclose(seen.features @ weight.T + bias, seen.logits, atol=1e-5)


def test_some_rows(network: Network, digits: Rows) -> None:
    """By their places, in that order; and of no rows there is nothing, in the right shapes."""
    places = torch.tensor([150, 3, 77])
    whole, part = observe(network, digits), observe(network, digits, places)
    assert whole.features is not None
    assert part.features is not None
    assert_allclose(part.logits, whole.logits[places], atol=1e-5)
    assert_allclose(part.features, whole.features[places], atol=1e-5)
    assert part.labels.tolist() == whole.labels[places].tolist()
    empty = observe(network, digits.take(slice(0, 0)), noise=Noise(0.05, seed=1))
    assert (empty.logits.shape, len(empty.labels)) == ((0, 10), 0)


def test_a_network_without_a_last_linear_layer_has_no_features(echo: Network, digits: Rows) -> None:
    """Its logits are there all the same."""
    seen = observe(echo, digits)
    assert seen.features is None
    assert np.array_equal(seen.logits, digits.images.flatten(1).double().numpy())


def test_noise_is_gaussian_of_the_deviation_asked_for(echo: Network, grey: Rows) -> None:
    """.05 of 255 grey levels; Kolmogorov and Smirnov see no other distribution in 9,600 pixels."""
    noise = observe(echo, grey, noise=Noise(0.05, seed=1)).logits - 128
    assert stats.kstest(noise.ravel() / (0.05 * 255), "norm").pvalue > 0.01
    others = np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]
    assert abs(others) < 0.05  # rows do not share their noise with their neighbours


def test_noisy_pixels_stay_pixels(echo: Network, digits: Rows) -> None:
    """Black gets no darker, white no lighter, and half of the pixels are clamped."""
    for value in (0, 255):
        rows = Rows(torch.full_like(digits.images, value), digits.labels)
        pixels = observe(echo, rows, noise=Noise(0.05, seed=1)).logits
        assert (pixels.min() >= 0, pixels.max() <= 255) == (True, True)
        assert (pixels == value).mean() == pytest.approx(0.5, abs=0.02)


def test_a_row_has_its_noise_whatever_is_asked_for_beside_it(echo: Network, grey: Rows) -> None:
    """Other batches, another order, other images: the noise is that of its place and of the seed."""
    noise = Noise(0.05, seed=1)
    whole = observe(echo, grey, noise=noise).logits
    places = torch.tensor([149, 64, 0, 63, 149])
    assert np.array_equal(observe(echo, grey, places, noise=noise).logits, whole[places])
    brighter = Rows(grey.images + 10, grey.labels)
    assert_allclose(observe(echo, brighter, noise=noise).logits, whole + 10, atol=1e-4)
    other = observe(echo, grey, noise=Noise(0.05, seed=2)).logits
    assert abs(np.corrcoef(other.ravel(), whole.ravel())[0, 1]) < 0.05
