"""What is seen of images without a network, by hand and in batches."""

from __future__ import annotations

import numpy as np
import pytest

from workers.audit.appearance import appearance
from workers.data.batches import Rows


def test_means_deviations_and_thumbnail() -> None:
    """A row half black and half white in one channel, all grey in the other."""
    images = np.zeros((1, 8, 8, 2), dtype=np.uint8)
    images[0, :, 4:, 0] = 255
    images[0, :, :, 1] = 51
    found = appearance(Rows.of(images, np.zeros(1, dtype=np.int64)))
    assert found.shape == (1, 2 * (2 + 16))
    assert found[0, :4] == pytest.approx([0.5, 0.2, 0.5, 0.0], abs=1e-6)
    assert found[0, 4:20].reshape(4, 4) == pytest.approx(np.tile([0, 0, 1, 1], (4, 1)), abs=1e-6)


def test_batches_do_not_matter() -> None:
    """More rows than one batch, each as it is alone; none give none."""
    images = np.random.default_rng(1).integers(0, 256, (300, 5, 5, 1), dtype=np.uint8)
    labels = np.zeros(300, dtype=np.int64)
    found = appearance(Rows.of(images, labels))
    last = appearance(Rows.of(images[-1:], labels[-1:]))
    np.testing.assert_allclose(found[-1:], last, atol=1e-6)
    assert appearance(Rows.of(images[:0], labels[:0])).shape == (0, 18)
