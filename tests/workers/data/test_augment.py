from __future__ import annotations

import pytest
import torch
from torch import Tensor

from workers.data.augment import Augmentation, augment


@pytest.fixture
def images() -> Tensor:
    """64 random 6x5 images of two channels, no pixel black."""
    draw = torch.Generator().manual_seed(0)
    return torch.randint(1, 256, (64, 2, 6, 5), dtype=torch.uint8, generator=draw)


def _augmented(images: Tensor, kind: Augmentation, seed: int = 1) -> Tensor:
    return augment(images, kind, torch.Generator().manual_seed(seed))


def test_none_changes_nothing(images: Tensor) -> None:
    """Without augmentation the very same tensor comes back."""
    assert _augmented(images, "none") is images


def test_flip_mirrors_about_half(images: Tensor) -> None:
    """Every image is itself or its mirror image, and both happen."""
    flipped = _augmented(images, "flip")
    mirrored = [torch.equal(new, old.flip(2)) for new, old in zip(flipped, images, strict=True)]
    kept = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert 16 < sum(mirrored) < 48


def test_crop_takes_a_window_of_the_padded_image(images: Tensor) -> None:
    """Each result is one of the 81 windows of the image, or of its mirror image, on a black margin."""
    for new, old in zip(_augmented(images, "flip_crop"), images, strict=True):
        windows = [
            torch.nn.functional.pad(version, (4, 4, 4, 4))[:, y : y + 6, x : x + 5]
            for version in (old, old.flip(2))
            for y in range(9)
            for x in range(9)
        ]
        assert any(torch.equal(new, window) for window in windows)


def test_crop_reaches_every_shift() -> None:
    """Over many images all 81 shifts occur, up to 4 pixels to each side."""
    image = torch.arange(1, 50, dtype=torch.uint8).reshape(1, 1, 7, 7).expand(3000, 1, 7, 7)
    crops = _augmented(image, "flip_crop").flatten(1)
    assert len(torch.unique(crops, dim=0)) == 2 * 81


def test_crop_keeps_the_batch_channels_last(images: Tensor) -> None:
    """The layout that convolutions want is not lost."""
    cropped = _augmented(images.contiguous(memory_format=torch.channels_last), "flip_crop")
    assert cropped.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", ["flip", "flip_crop"])
def test_the_generator_decides(images: Tensor, kind: Augmentation) -> None:
    """Equal generators give equal batches, others give others, and the input is left alone."""
    before = images.clone()
    assert torch.equal(_augmented(images, kind), _augmented(images, kind))
    assert not torch.equal(_augmented(images, kind), _augmented(images, kind, seed=2))
    assert torch.equal(images, before)
