"""VGG-16 for small images (Simonyan & Zisserman 2015, column D), batch-normalised, with one linear layer."""

from __future__ import annotations

from torch import Tensor, nn

_STAGES = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))  # widths, as multiples of the first


class Vgg16(nn.Module):
    """Thirteen 3x3 convolutions in five stages, each of which ends in a 2x2 max-pool.

    The pools do not overlap, so that their gradients are deterministic on every device.
    """

    def __init__(self, channels: int, num_classes: int, base: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for stage in _STAGES:
            for multiple in stage:
                layers += _layer(channels, multiple * base)
                channels = multiple * base
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(pixels).mean((2, 3)))
        return logits


def _layer(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
