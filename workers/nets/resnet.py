"""Residual networks for small images (He et al. 2016, section 4.2): 3x3 stem, three stages, no pooling."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class ResNet(nn.Module):
    """6n + 2 weighted layers: a stem and three stages of n blocks, each twice as wide and half as large.

    Where a stage begins, the shortcut is a strided 1x1 convolution with batch normalisation (option B).
    """

    def __init__(self, channels: int, num_classes: int, *, blocks: int, base: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, base, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(base)
        self.stages = nn.Sequential(
            _stage(base, base, blocks=blocks, stride=1),
            _stage(base, 2 * base, blocks=blocks, stride=2),
            _stage(2 * base, 4 * base, blocks=blocks, stride=2),
        )
        self.classifier = nn.Linear(4 * base, num_classes)

    def forward(self, pixels: Tensor) -> Tensor:
        features = self.stages(functional.relu(self.stem_norm(self.stem(pixels))))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        )

    def forward(self, features: Tensor) -> Tensor:
        hidden = functional.relu(self.norm1(self.conv1(features)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(features))


def _stage(inputs: int, outputs: int, *, blocks: int, stride: int) -> nn.Sequential:
    first = _Block(inputs, outputs, stride)
    return nn.Sequential(first, *(_Block(outputs, outputs, 1) for _ in range(blocks - 1)))
