"""The networks of our own by name, and their initial values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from app.jobs.params import SIDES, BuiltInName
from workers.nets.mobilenet import MobileNetV2
from workers.nets.resnet import Bottleneck, ResNet
from workers.nets.small_cnn import SmallCnn
from workers.nets.vgg import Vgg16
from workers.nets.vit import Embedding, VisionTransformer

# Of an image's height, width and channels, the number of classes, and the factor that widens all layers.
Body = Callable[[tuple[int, int, int], int, float], nn.Module]


def _narrow(blocks: int) -> Body:
    return lambda shape, classes, width: ResNet(
        shape[2], classes, blocks=(blocks,) * 3, base=_scaled(16, width)
    )


BODIES: Mapping[BuiltInName, Body] = {
    "small_cnn": lambda shape, classes, width: SmallCnn(shape[2], classes, _scaled(16, width)),
    "resnet8": _narrow(1),
    "resnet14": _narrow(2),
    "resnet20": _narrow(3),
    "resnet18": lambda shape, classes, width: ResNet(
        shape[2], classes, blocks=(2, 2, 2, 2), base=_scaled(64, width)
    ),
    "resnet50": lambda shape, classes, width: ResNet(
        shape[2], classes, blocks=(3, 4, 6, 3), base=_scaled(64, width), block=Bottleneck
    ),
    "vgg16": lambda shape, classes, width: Vgg16(shape[2], classes, _scaled(64, width)),
    "mobilenet_v2": lambda shape, classes, width: MobileNetV2(shape[2], classes, width),
    "vit_small": lambda shape, classes, width: VisionTransformer(
        shape, classes, heads=_scaled(6, width), patch=SIDES["vit_small"].multiple_of
    ),
}


def _scaled(count: int, width: float) -> int:
    return max(1, round(count * width))


def initialise(body: nn.Module, generator: torch.Generator) -> None:
    """Draw every weight afresh, in place (He et al. 2015 for convolutions), and reset running statistics.

    The values are drawn on the CPU, so they are the same on every device.
    """
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            _draw(module.weight, _fan_out(module), generator, gain=2)
            _zero(module.bias)
        elif isinstance(module, nn.Linear):
            _draw(module.weight, module.in_features, generator, gain=1)
            _zero(module.bias)
        elif isinstance(module, Embedding):
            module.draw(generator)
        elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            module.reset_parameters()  # ones and zeros: nothing is drawn


def _fan_out(convolution: nn.Conv2d) -> int:
    """How many outputs an input has a part in; those of a group have none in the other groups' outputs."""
    within = convolution.out_channels // convolution.groups
    return within * convolution.weight[0, 0].numel()


@torch.no_grad()
def _draw(weight: Tensor, fan: int, generator: torch.Generator, *, gain: float) -> None:
    """Normal values of variance gain / fan."""
    weight.copy_(torch.randn(weight.shape, generator=generator) * (gain / fan) ** 0.5)


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        nn.init.zeros_(bias)
