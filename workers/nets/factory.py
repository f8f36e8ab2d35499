"""Build a network of the allow-list, with every initial value drawn from one generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from app.jobs.params import Architecture
from workers.nets.network import Network
from workers.nets.resnet import ResNet
from workers.nets.small_cnn import SmallCnn

_BASE_CHANNELS = 16

BODIES: Mapping[str, Callable[[int, int, int], nn.Module]] = {
    "small_cnn": SmallCnn,
    "resnet8": lambda channels, classes, base: ResNet(channels, classes, blocks=1, base=base),
    "resnet14": lambda channels, classes, base: ResNet(channels, classes, blocks=2, base=base),
    "resnet20": lambda channels, classes, base: ResNet(channels, classes, blocks=3, base=base),
}


def build(
    architecture: Architecture,
    num_classes: int,
    image_shape: tuple[int, int, int],
    generator: torch.Generator,
) -> Network:
    """A freshly initialised network on the CPU, channels last.

    Args:
        architecture: which network of the allow-list, how wide.
        num_classes: logits a row.
        image_shape: height, width, channels.
        generator: a CPU generator; the global one is not touched.
    """
    channels = image_shape[2]
    base = max(1, round(_BASE_CHANNELS * architecture.width))
    with torch.device("meta"):  # the layers' own initialisation would draw from the global generator
        body = BODIES[architecture.name](channels, num_classes, base)
        network = Network(body, channels)
    network.to_empty(device="cpu")
    initialise(network, generator)
    return network.to(memory_format=torch.channels_last)


def initialise(network: Network, generator: torch.Generator) -> None:
    """Draw every weight afresh, in place (He et al. 2015 for convolutions), and reset running statistics.

    The values are drawn on the CPU, so they are the same on every device.
    """
    network.mean.zero_()
    network.std.fill_(1)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            _draw(module.weight, module.out_channels * module.weight[0, 0].numel(), generator, gain=2)
        elif isinstance(module, nn.Linear):
            _draw(module.weight, module.in_features, generator, gain=1)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()  # ones and zeros: nothing is drawn


@torch.no_grad()
def _draw(weight: Tensor, fan: int, generator: torch.Generator, *, gain: float) -> None:
    """Normal values of variance gain / fan."""
    weight.copy_(torch.randn(weight.shape, generator=generator) * (gain / fan) ** 0.5)
