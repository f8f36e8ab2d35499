"""Residual networks for small images (He et al. 2016): a 3x3 stem, and no pooling but the mean at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional


class Basic(nn.Module):
    """Two 3x3 convolutions, and the shortcut around them."""

    widening: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, features: Tensor) -> Tensor:
        hidden = functional.relu(self.norm1(self.conv1(features)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(features))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, the last four times as wide, and the shortcut around them.

    The 3x3 convolution has the stride, as in torchvision, not the first one as in the paper.
    """

    widening: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = self.widening * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, features: Tensor) -> Tensor:
        hidden = functional.relu(self.norm1(self.conv1(features)))
        hidden = functional.relu(self.norm2(self.conv2(hidden)))
        return functional.relu(self.norm3(self.conv3(hidden)) + self.shortcut(features))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """A stem and stages of blocks, each stage twice as wide and half as large as the one before.

    Where a stage becomes wider, the shortcut is a strided 1x1 convolution with batch normalisation (option
    B). Three stages of n basic blocks have 6n + 2 weighted layers (section 4.2); four are the networks of the
    paper's table 1 but for the stem.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        blocks: Sequence[int],
        base: int,
        block: type[Basic | Bottleneck] = Basic,
    ) -> None:
        """`blocks`: how many each stage has; `base`: the channels of the stem and the first stage."""
        super().__init__()
        self.stem = nn.Conv2d(channels, base, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(base)
        stages, inputs = [], base
        for number, count in enumerate(blocks):
            width = base * 2**number
            stages.append(_stage(block, inputs, width, blocks=count, stride=2 if number else 1))
            inputs = block.widening * width
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(inputs, num_classes)

    def forward(self, pixels: Tensor) -> Tensor:
        features = self.stages(functional.relu(self.stem_norm(self.stem(pixels))))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


def _stage(
    block: type[Basic | Bottleneck], inputs: int, width: int, *, blocks: int, stride: int
) -> nn.Sequential:
    first = block(inputs, width, stride)
    return nn.Sequential(first, *(block(block.widening * width, width, 1) for _ in range(blocks - 1)))
