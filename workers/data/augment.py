"""Random changes of a whole batch of images at once, on the device where it lies."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Augmentation = Literal["none", "flip", "flip_crop"]
_MARGIN = 4  # pixels of black around the image that a crop is taken from (He et al. 2016, section 4.2)


def augment(images: Tensor, kind: Augmentation, generator: torch.Generator) -> Tensor:
    """Mirror half of the images left to right; with `flip_crop` also shift each by up to 4 pixels.

    Args:
        images: [B, C, H, W]; not changed.
        kind: what to do.
        generator: on the images' device.
    """
    if kind == "none":
        return images
    flipped = _flip(images, generator)
    return _crop(flipped, generator) if kind == "flip_crop" else flipped


def _flip(images: Tensor, generator: torch.Generator) -> Tensor:
    chosen = torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
    return torch.where(chosen, images.flip(3), images)


def _crop(images: Tensor, generator: torch.Generator) -> Tensor:
    count, _, height, width = images.shape
    device = images.device
    padded = functional.pad(images, (_MARGIN, _MARGIN, _MARGIN, _MARGIN))
    offsets = torch.randint(2 * _MARGIN + 1, (2, count), generator=generator, device=device)
    y = offsets[0, :, None, None] + torch.arange(height, device=device)[None, :, None]  # [B, H, 1]
    x = offsets[1, :, None, None] + torch.arange(width, device=device)[None, None, :]  # [B, 1, W]
    image = torch.arange(count, device=device)[:, None, None]
    cut = padded.permute(0, 2, 3, 1)[image, y, x]  # [B, H, W, C]
    return cut.permute(0, 3, 1, 2)
