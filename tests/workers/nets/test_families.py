"""Networks of torchvision and of plugins: built, initialised, normalised, stored and loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torchvision
from torch import Tensor
from torch.testing import assert_close
from torchvision.models import get_model

from app.jobs.params import TORCHVISION_CLASSIFIERS, BuiltIn, Normalisation, Plugin, Torchvision
from workers.nets.factory import BadArchitecture, build
from workers.nets.network import Network

_IMAGENET = Normalisation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def _torchvision(
    name: str, *, seed: int = 0, channels: int = 3, arguments: Mapping[str, float | str] | None = None
) -> Network:
    architecture = Torchvision(
        family="torchvision",
        name=name,
        arguments=arguments or {},
        normalisation=_IMAGENET if channels == 3 else None,
    )
    return build(architecture, 5, (32, 32, channels), torch.Generator().manual_seed(seed))


def _images(count: int, channels: int) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, channels, 32, 32), dtype=torch.uint8, generator=draw)


def test_every_classifier_of_torchvision_is_on_the_list() -> None:
    """And nothing else: the API cannot ask torchvision."""
    assert set(TORCHVISION_CLASSIFIERS) == set(torchvision.models.list_models(module=torchvision.models))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_a_network_is_torchvisions_own(name: str) -> None:
    """Its tensors load into plain torchvision, which then gives the same logits for normalised images."""
    network = _torchvision(name).eval()
    with torch.random.fork_rng(devices=[]):
        plain = get_model(name, weights=None, num_classes=5).eval()
    plain.load_state_dict(network.tensors(), strict=True)
    images = torch.randint(
        0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    mean, std = (torch.tensor(each)[:, None, None] for each in (_IMAGENET.mean, _IMAGENET.std))
    with torch.inference_mode():
        assert_close(network(images), plain((images / 255 - mean) / std), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_auxiliary_outputs_are_left_out(name: str) -> None:
    """In training mode these networks give several."""
    network = _torchvision(name).train()
    with torch.random.fork_rng(devices=[]):  # they drop out
        assert network(torch.zeros(2, 3, 299, 299, dtype=torch.uint8)).shape == (2, 5)


def test_initial_values_follow_from_the_generator_alone() -> None:
    """The global generator is neither used nor moved."""
    before = torch.get_rng_state()
    first, second = _torchvision("mobilenet_v3_small"), _torchvision("mobilenet_v3_small")
    assert torch.equal(before, torch.get_rng_state())
    other = _torchvision("mobilenet_v3_small", seed=1)
    for name, tensor in first.tensors().items():
        assert torch.equal(tensor, second.tensors()[name])
    assert any(not torch.equal(tensor, other.tensors()[name]) for name, tensor in first.tensors().items())


def test_a_network_starts_afresh_as_it_would_be_built() -> None:
    """Retraining forgets everything but what is fixed."""
    network, fresh = _torchvision("mobilenet_v3_small"), _torchvision("mobilenet_v3_small", seed=3)
    network.start_afresh(torch.Generator().manual_seed(3))
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name


def test_grey_images_are_given_three_times() -> None:
    """To networks that take colours."""
    grey = torch.randint(
        0, 256, (2, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    network = _torchvision("resnet18", channels=1).eval()
    with torch.inference_mode():
        expected = network.body(grey.float().expand(-1, 3, -1, -1))
        assert_close(network(grey), expected)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("resnet18", {"colour": "red"}, "TypeError"),
        ("mobilenet_v2", {"width_mult": 500.0}, "bytes"),
        ("vit_b_16", {"image_size": 30}, "Input shape"),
    ],
)
def test_wrong_arguments_have_a_reason(name: str, arguments: dict[str, float], reason: str) -> None:
    """Before any memory is taken for weights."""
    with pytest.raises(BadArchitecture, match=reason):
        _torchvision(name, arguments=arguments)


def test_normalisation_must_fit_the_channels() -> None:
    """One value for all, or one for each."""
    with pytest.raises(BadArchitecture, match="one for each of 1"):
        build(BuiltIn(normalisation=_IMAGENET), 10, (8, 8, 1), torch.Generator())
    one = Normalisation(mean=(0.5,), std=(0.25,))
    network = build(BuiltIn(normalisation=one), 10, (8, 8, 3), torch.Generator())
    assert network.mean.flatten().tolist() == [127.5] * 3


def test_fixed_constants_are_not_taken_from_rows() -> None:
    """Nor from a file's facts; without them the file must have its own."""
    network = build(
        BuiltIn(width=0.25, normalisation=Normalisation(mean=(0.5,), std=(0.25,))),
        10,
        (8, 8, 1),
        torch.Generator(),
    )
    network.normalise_by([torch.zeros(2, 1, 8, 8, dtype=torch.uint8)])
    network.load(network.tensors(), {"mean": [1.0], "std": [2.0]})
    assert (network.mean.item(), network.std.item()) == (127.5, 63.75)
    free = build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator())
    with pytest.raises(ValueError, match="normalised"):
        free.load(free.tensors(), {})
    free.load(free.tensors(), {"mean": [1.5], "std": [2.0]})
    assert (free.mean.item(), free.std.item()) == (1.5, 2.0)
    with pytest.raises(ValueError, match="tensors"):
        free.load({}, {"mean": [1.5], "std": [2.0]})


def test_a_plugin_that_is_not_installed_is_refused() -> None:
    """The name alone runs nothing."""
    with pytest.raises(BadArchitecture, match="no installed package"):
        build(Plugin(family="plugin", name="nowhere"), 10, (8, 8, 1), torch.Generator())


_PLUGIN = """
from torch import nn

def linear(num_classes, image_shape, *, bias=True):
    height, width, channels = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(height * width * channels, num_classes, bias=bias))
"""
_PROGRAM = """
import torch
from app.jobs.params import Plugin
from workers.nets.factory import build
chosen = Plugin(family="plugin", name="linear", arguments={"bias": False})
network = build(chosen, 4, (8, 8, 1), torch.Generator().manual_seed(0))
print(list(network.tensors()), tuple(network(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape))
"""


def test_a_plugin_of_an_installed_package_is_built(tmp_path: Path) -> None:
    """By the entry point that the package declares."""
    (tmp_path / "my_networks.py").write_text(_PLUGIN)
    (info := tmp_path / "my_networks-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-networks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[expunge.networks]\nlinear = my_networks:linear\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{_PROGRAM}"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['1.weight'] (2, 4)"
