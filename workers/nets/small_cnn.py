"""A small convolutional network for small images."""

from __future__ import annotations

from torch import Tensor, nn


class SmallCnn(nn.Module):
    """Three 3x3 convolutions with batch normalisation; the second and third halve the sides.

    Strided convolutions and a plain mean instead of pooling layers: these have deterministic gradients on
    every device.
    """

    def __init__(self, channels: int, num_classes: int, base: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_layer(channels, base, stride=1),
            *_layer(base, 2 * base, stride=2),
            *_layer(2 * base, 4 * base, stride=2),
        )
        self.classifier = nn.Linear(4 * base, num_classes)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(pixels).mean((2, 3)))
        return logits


def _layer(inputs: int, outputs: int, *, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )
