"""The features of every family of networks are those that its last layer turns into its logits."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from app.jobs.params import BuiltIn, BuiltInName, Torchvision
from workers.nets.factory import build
from workers.nets.network import Network
from workers.nets.penultimate import penultimate


def _images(side: int) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=draw)


def _built_in(name: BuiltInName) -> Network:
    return build(BuiltIn(name=name, width=0.25), 5, (32, 32, 3), torch.Generator().manual_seed(0)).eval()


def _torchvision(name: str) -> Network:
    architecture = Torchvision(family="torchvision", name=name)
    return build(architecture, 5, (32, 32, 3), torch.Generator().manual_seed(0)).eval()


def _check(network: Network, head: nn.Module, images: Tensor) -> None:
    """The head's own weights make the logits of the features, and nothing is left on the network."""
    assert isinstance(head, nn.Linear)
    with torch.inference_mode():
        expected = network(images)
        with penultimate(network) as features_of:
            logits = network(images)
            features = features_of(logits)
        assert features is not None
        assert features.shape == (len(images), head.in_features)
        assert torch.equal(logits, expected)
        assert_close(functional.linear(features, head.weight, head.bias), logits)
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("name", get_args(BuiltInName))
def test_networks_of_our_own(name: BuiltInName) -> None:
    """Residual, plain, mobile and attending."""
    network = _built_in(name)
    _check(network, list(network.modules())[-1], _images(32))


@pytest.mark.parametrize(
    ("name", "side"),
    [("resnet18", 32), ("mobilenet_v3_small", 32), ("densenet121", 32), ("googlenet", 64), ("swin_t", 32)],
)
def test_networks_of_torchvision(name: str, side: int) -> None:
    """In evaluation mode the auxiliary heads of GoogLeNet are silent; its last layer is still the last."""
    network = _torchvision(name)
    _check(network, list(network.modules())[-1], _images(side))


def test_auxiliary_heads_have_no_say() -> None:
    """In training mode GoogLeNet gives three heads' logits; the features are those of the first."""
    network = _torchvision("googlenet").train()
    with torch.random.fork_rng(devices=[]), penultimate(network) as features_of:  # they drop out
        logits = network(_images(64))
        features = features_of(logits)
    assert features is not None
    assert_close(network.body.get_submodule("fc")(features), logits)


def test_a_network_that_ends_in_a_convolution_has_none() -> None:
    """SqueezeNet has no linear layer at all."""
    network = _torchvision("squeezenet1_1")
    with torch.inference_mode(), penultimate(network) as features_of:
        assert features_of(network(_images(64))) is None


def test_logits_that_are_changed_afterwards_have_none() -> None:
    """What stands between the last layer and the answer may be anything; and other logits are not meant."""
    with torch.device("meta"):
        body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4, 5), nn.Softmax(1))
    body.to_empty(device="cpu")
    network = Network(lambda _: body, 3, torch.Generator())
    with torch.inference_mode(), penultimate(network) as features_of:
        assert features_of(network(_images(2))) is None
        assert features_of(torch.zeros(2, 5)) is None


def test_hooks_go_even_when_the_network_fails() -> None:
    """An image that is too small, say."""
    network = _built_in("small_cnn")
    with pytest.raises(RuntimeError), penultimate(network):
        network(torch.zeros(2, 7, 8, 8))
    assert not any(module._forward_hooks for module in network.modules())
