from __future__ import annotations

import pytest
import torch
from torch import Tensor

from app.jobs.params import ARCHITECTURE, SIDES, BuiltInName, misfit
from app.jobs.params.networks import Sides
from workers.nets.built_in import BODIES
from workers.nets.factory import BadArchitecture, build
from workers.nets.network import Network

NAMES = sorted(BODIES)


def _build(name: str = "small_cnn", width: float = 1.0, channels: int = 3, seed: int = 0) -> Network:
    architecture = ARCHITECTURE.validate_python({"name": name, "width": width})
    return build(architecture, 10, (32, 32, channels), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "width", "weights"),
    [
        ("resnet8", 2.0, 308_650),  # the network of the benchmark tables
        ("resnet20", 1.0, 272_474),  # He et al. 2016, table 6: 0.27 M
        # Those of torchvision less what its stem and its head for ImageNet have more.
        ("resnet18", 1.0, 11_689_512 - 9_408 + 1_728 - 513_000 + 5_130),
        ("resnet50", 1.0, 25_557_032 - 9_408 + 1_728 - 2_049_000 + 20_490),
        ("vgg16", 1.0, 14_728_266),  # thirteen convolutions and their normalisation, and 513 x 10
        ("mobilenet_v2", 1.0, 3_504_872 - 1_281_000 + 12_810),
        # Touvron et al. 2021, table 1: 22 M at 224 x 224 in patches of 16; here 64 patches of 48 values.
        ("vit_small", 1.0, 12 * 1_774_464 + 49 * 384 + 66 * 384 + 2 * 384 + 385 * 10),
    ],
)
def test_sizes_are_the_known_ones(name: str, width: float, weights: int) -> None:
    """The residual networks have the number of weights that their descriptions say."""
    assert sum(weight.numel() for weight in _build(name, width).parameters()) == weights


@pytest.mark.parametrize(("name", "layers"), [("resnet8", 8), ("resnet14", 14), ("resnet20", 20)])
def test_depth_is_in_the_name(name: str, layers: int) -> None:
    """A ResNet-d has d weighted layers, not counting the shortcuts."""
    kinds = (torch.nn.Conv2d, torch.nn.Linear)
    counted = [
        part
        for path, part in _build(name).named_modules()
        if isinstance(part, kinds) and "shortcut" not in path
    ]
    assert len(counted) == layers


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(4, 8, 1), (8, 8, 1), (32, 32, 3), (17, 9, 3), (64, 36, 3)])
def test_images_that_fit_give_logits(name: str, shape: tuple[int, int, int]) -> None:
    """Of one or three channels, in a batch of one row that is learned too; others are refused."""
    architecture = ARCHITECTURE.validate_python({"name": name, "width": 0.25})
    if misfit(architecture, shape):
        with pytest.raises(BadArchitecture, match=f"{name} takes images with sides of at least"):
            build(architecture, 7, shape, torch.Generator())
        return
    network = build(architecture, 7, shape, torch.Generator().manual_seed(0)).train()
    assert network(torch.zeros(1, shape[2], *shape[:2], dtype=torch.uint8)).shape == (1, 7)


@pytest.mark.parametrize(("name", "sides"), SIDES.items())
def test_the_least_sides_are_the_least(name: BuiltInName, sides: Sides) -> None:
    """With fewer pixels a batch of one row leaves its normalisation, or a patch, nothing to work with."""

    def classified(side: int) -> Tensor:
        with torch.device("meta"):
            return BODIES[name]((side, side, 3), 2, 0.25).train()(torch.zeros(1, 3, side, side))  # type: ignore[no-any-return]

    assert classified(sides.least).shape == (1, 2)
    with pytest.raises((ValueError, RuntimeError)):
        classified(sides.least - 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_decides_every_value(name: str) -> None:
    """Equal seeds give equal networks, all values set; another seed gives other convolutions."""
    first, second, other = (_build(name, width=0.25, seed=seed) for seed in (1, 1, 2))
    for key, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[key])
        assert value.isfinite().all()
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_initial_values_have_the_stated_variance() -> None:
    """Convolutions 2 / (outputs * kernel area), the classifier 1 / inputs; normalisation is the identity."""
    network = _build("resnet8", width=4.0)
    stem = network.get_parameter("body.stages.2.0.conv2.weight")
    assert stem.var().item() == pytest.approx(2 / (256 * 9), rel=0.02)
    assert network.get_parameter("body.classifier.weight").var().item() == pytest.approx(1 / 256, rel=0.1)
    assert torch.equal(network.get_parameter("body.stem_norm.weight"), torch.ones(64))


def test_initialising_forgets_everything() -> None:
    """After training has moved weights, statistics and normalisation, nothing of it is left."""
    network = _build(seed=3)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.add_(1)
    network.start_afresh(torch.Generator().manual_seed(3))
    for key, value in _build(seed=3).state_dict().items():
        assert torch.equal(network.state_dict()[key], value)


def test_weights_are_channels_last() -> None:
    """Convolutions run in the layout that suits them."""
    assert _build().get_parameter("body.features.3.weight").is_contiguous(memory_format=torch.channels_last)
