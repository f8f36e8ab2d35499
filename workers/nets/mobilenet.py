"""MobileNetV2 for small images (Sandler et al. 2018)."""

from __future__ import annotations

from torch import Tensor, nn

# Table 2: expansion, channels, blocks, stride. The stem and the second stage have stride 1 instead of 2.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_STEM, _LAST = 32, 1280


class MobileNetV2(nn.Module):
    """Inverted residual blocks: widen by 1x1, filter each channel by 3x3, and narrow without a ReLU.

    `width` multiplies the channels as in the paper: they are multiples of 8, and the last layer's are not
    lessened.
    """

    def __init__(self, channels: int, num_classes: int, width: float) -> None:
        super().__init__()
        inputs, last = _eights(_STEM * width), _eights(_LAST * max(1, width))
        layers: list[nn.Module] = [_layer(channels, inputs, 3)]
        for expansion, wanted, blocks, stride in _STAGES:
            outputs = _eights(wanted * width)
            for number in range(blocks):
                layers.append(_Block(inputs, outputs, expansion, 1 if number else stride))
                inputs = outputs
        self.features = nn.Sequential(*layers, _layer(inputs, last, 1))
        self.classifier = nn.Linear(last, num_classes)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(pixels).mean((2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = expansion * inputs
        widen = [] if expansion == 1 else [_layer(inputs, hidden, 1)]
        self.layers = nn.Sequential(
            *widen,
            _layer(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        found: Tensor = self.layers(features)
        return features + found if self.is_residual else found


def _layer(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    padding = kernel // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


def _eights(wanted: float) -> int:
    """The nearest multiple of 8, but at least 8, and not more than a tenth below what is wanted."""
    nearest = max(8, int(wanted + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * wanted else nearest + 8
