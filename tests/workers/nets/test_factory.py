from __future__ import annotations

import pytest
import torch

from app.jobs.params import ARCHITECTURE
from workers.nets.factory import BODIES, build
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
@pytest.mark.parametrize("shape", [(8, 8, 1), (32, 32, 3), (17, 9, 3)])
def test_any_image_shape_gives_logits(name: str, shape: tuple[int, int, int]) -> None:
    """Every network classifies images of any size and of one or three channels."""
    network = build(ARCHITECTURE.validate_python({"name": name}), 7, shape, torch.Generator().manual_seed(0))
    images = torch.zeros(2, shape[2], *shape[:2], dtype=torch.uint8)
    assert network(images).shape == (2, 7)


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_decides_every_value(name: str) -> None:
    """Equal seeds give equal networks, all values set; another seed gives other convolutions."""
    first, second, other = _build(name, seed=1), _build(name, seed=1), _build(name, seed=2)
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
