"""Networks of our own beside those of torchvision, changed to suit small images as ours are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torchvision.models import MobileNetV2, ResNet, VisionTransformer
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.models.vgg import VGG, make_layers

from app.jobs.params import BuiltInName
from workers.nets.built_in import BODIES, initialise

_CLASSES = 7
_SHAPE = (32, 32, 3)


def _resnet(block: type[BasicBlock | Bottleneck], blocks: list[int]) -> nn.Module:
    network: nn.Module = ResNet(block, blocks, num_classes=_CLASSES)
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    return network


def _vgg16() -> nn.Module:
    column_d = [64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3, "M"]
    network: nn.Module = VGG(make_layers(column_d, batch_norm=True), init_weights=False)
    network.avgpool = nn.AdaptiveAvgPool2d(1)
    network.classifier = nn.Linear(512, _CLASSES)
    return network


def _mobilenet_v2() -> nn.Module:
    stages = [[1, 16, 1, 1], [6, 24, 2, 1], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2]]
    network: nn.Module = MobileNetV2(
        num_classes=_CLASSES, inverted_residual_setting=[*stages, [6, 320, 1, 1]]
    )
    stem = network.get_submodule("features.0.0")
    assert isinstance(stem, nn.Conv2d)
    stem.stride = (1, 1)
    network.classifier = network.get_submodule("classifier.1")  # without dropout
    return network


def _vit_small() -> nn.Module:
    network: nn.Module = VisionTransformer(
        image_size=32,
        patch_size=4,
        num_layers=12,
        num_heads=6,
        hidden_dim=384,
        mlp_dim=1536,
        num_classes=_CLASSES,
    )
    return network


_TWINS: dict[BuiltInName, Callable[[], nn.Module]] = {
    "resnet18": lambda: _resnet(BasicBlock, [2, 2, 2, 2]),
    "resnet50": lambda: _resnet(Bottleneck, [3, 4, 6, 3]),
    "vgg16": _vgg16,
    "mobilenet_v2": _mobilenet_v2,
    "vit_small": _vit_small,
}


def _ours(name: BuiltInName) -> nn.Module:
    """Drawn without the global generator."""
    with torch.device("meta"):
        body = BODIES[name](_SHAPE, _CLASSES, 1.0)
    body.to_empty(device="cpu")
    initialise(body, torch.Generator().manual_seed(0))
    return body


def _as_torchvision_has_them(name: str, body: nn.Module) -> list[Tensor]:
    """Its tensors in the order and shapes that torchvision's network has them in."""
    tensors = list(body.state_dict().values())
    if name == "vit_small":  # there the class token comes first, and patches are cut by a convolution
        weight, bias, token, *rest = tensors
        return [token, weight.view(384, 3, 4, 4), bias, *rest]
    return tensors


@pytest.mark.parametrize("name", _TWINS)
@pytest.mark.parametrize("training", [True, False])
def test_a_network_is_the_published_one(name: BuiltInName, *, training: bool) -> None:
    """Equal weights give equal logits and equal gradients of the first layer."""
    ours = _ours(name).double()
    with torch.random.fork_rng(devices=[]):
        theirs = _TWINS[name]().double()
    values = _as_torchvision_has_them(name, ours)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), values, strict=True)), strict=True)
    pixels = torch.randn(
        4, 3, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).requires_grad_()
    logits = [network.train(training)(pixels) for network in (ours, theirs)]
    assert_close(logits[0], logits[1])
    slopes = [torch.autograd.grad(each.square().sum(), pixels)[0] for each in logits]
    assert_close(slopes[0], slopes[1])


def test_initial_embeddings_and_separable_convolutions_have_the_stated_variance() -> None:
    """0.02 cut off at twice that; 2 / (outputs that an input has a part in)."""
    positions = _ours("vit_small").get_parameter("embed.positions")
    assert positions.abs().max() <= 0.04
    assert positions.std().item() == pytest.approx(0.02 * 0.880, rel=0.02)  # scipy.stats.truncnorm(-2, 2)
    by_channel = _ours("mobilenet_v2").get_parameter("features.16.layers.1.0.weight")
    assert by_channel.shape == (960, 1, 3, 3)
    assert by_channel.var().item() == pytest.approx(2 / 9, rel=0.05)
