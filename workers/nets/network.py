"""The shell of every network: raw pixels in, logits out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Network(nn.Module):
    """Normalises uint8 images by its own constants, then classifies them with `body`.

    `mean` and `std` (one value a channel, in pixel units) belong to the weights: they are saved with them,
    taken from the rows the network is trained on, and never moved by an optimiser.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, K] of images uint8 [B, C, H, W]."""
        pixels = (images.to(self.mean.dtype) - self.mean).div_(self.std)
        logits: Tensor = self.body(pixels)
        return logits

    def normalise_by(self, images: Tensor) -> None:
        """Take mean and standard deviation a channel from images uint8 [n, C, H, W]."""
        sums = torch.zeros(images.shape[1], dtype=torch.float64)
        squares = torch.zeros_like(sums)
        for part in torch.split(images, 4096):
            pixels = part.to(torch.int64).permute(1, 0, 2, 3).flatten(1)  # [C, n H W]: sums are exact
            sums += pixels.sum(1).cpu()
            squares += pixels.square().sum(1).cpu()
        mean = sums / (images.numel() / images.shape[1])
        variance = squares / (images.numel() / images.shape[1]) - mean.square()
        self.mean.copy_(mean[:, None, None])
        self.std.copy_(variance.clamp_min(1).sqrt()[:, None, None])
