from __future__ import annotations

import numpy as np
import torch

from workers.nets.network import Network


def test_normalisation_is_that_of_the_rows() -> None:
    """Mean and deviation a channel agree with NumPy's, over more rows than one part holds."""
    images = np.random.default_rng(0).integers(0, 200, (5000, 2, 3, 4), dtype=np.uint8)
    network = Network(lambda _: torch.nn.Identity(), 2, torch.Generator())
    network.normalise_by(torch.split(torch.from_numpy(images), 1024))
    np.testing.assert_allclose(network.mean[:, 0, 0].numpy(), images.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(network.std[:, 0, 0].numpy(), images.std((0, 2, 3)), rtol=1e-6)
    pixels = network(torch.from_numpy(images))
    np.testing.assert_allclose(pixels.mean((0, 2, 3)).numpy(), 0, atol=1e-5)
    np.testing.assert_allclose(pixels.std((0, 2, 3)).numpy(), 1, rtol=1e-4)


def test_equal_pixels_divide_by_nothing_small() -> None:
    """A channel without variation keeps a deviation of one grey level."""
    network = Network(lambda _: torch.nn.Identity(), 1, torch.Generator())
    network.normalise_by([torch.full((3, 1, 2, 2), 9, dtype=torch.uint8)])
    assert network(torch.full((1, 1, 2, 2), 9, dtype=torch.uint8)).abs().max() == 0


def test_the_images_are_left_alone() -> None:
    """Normalising does not write into the batch."""
    network = Network(lambda _: torch.nn.Identity(), 1, torch.Generator()).double()
    images = torch.ones(1, 1, 2, 2, dtype=torch.float64)
    network.mean.fill_(3)
    network(images)
    assert images.eq(1).all()
