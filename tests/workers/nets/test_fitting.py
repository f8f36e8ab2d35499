"""Whether uploaded tensors are a network's own: every misfit is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from app.jobs.params import BuiltIn, Normalisation
from workers.nets.factory import build
from workers.nets.fitting import forward_fault, misfits
from workers.nets.network import Network

Tensors = dict[str, Tensor]
_NORMALISATION = Normalisation(mean=(0.5,), std=(0.25,))


def _network(num_classes: int = 10) -> Network:
    architecture = BuiltIn(width=0.25, normalisation=_NORMALISATION)
    return build(architecture, num_classes, (8, 8, 1), torch.Generator().manual_seed(0))


def _details(tensors: Tensors) -> list[str]:
    return [fault.detail for fault in misfits(_network(), tensors, 10)]


def test_a_networks_own_tensors_fit() -> None:
    """Also those of another network of the same architecture."""
    assert misfits(_network(), _network().tensors(), 10) == ()


@pytest.mark.parametrize(
    ("spoil", "details"),
    [
        (lambda t: t.pop("classifier.bias"), ["the file lacks the tensor classifier.bias"]),
        (lambda t: t.update(more=torch.ones(1)), ["the network has no tensor more"]),
        (
            lambda t: t.update({"classifier.weight": torch.ones(10, 3)}),
            ["the wrong shape has classifier.weight: (10, 3), not (10, 16)"],
        ),
        (
            lambda t: t.update({"classifier.bias": torch.zeros(10).half()}),
            ["the wrong type has classifier.bias: float16, not float32"],
        ),
        (
            lambda t: t["classifier.bias"][:3].fill_(torch.inf),
            ["values that are not finite numbers are in classifier.bias: 3 of 10"],
        ),
    ],
)
def test_every_kind_of_misfit_is_named(spoil: Callable[[Tensors], object], details: list[str]) -> None:
    """By the tensor's name."""
    tensors = {name: tensor.clone() for name, tensor in _network().tensors().items()}
    spoil(tensors)
    assert _details(tensors) == details


def test_another_number_of_classes_is_said_to_be_that() -> None:
    """Before the shapes that follow from it."""
    details = _details(_network(num_classes=7).tensors())
    assert details[0] == "the file is of a network with 7 classes; the data set has 10"
    assert len(details) == 3


def test_of_very_many_misfits_the_first_are_named() -> None:
    """The others are counted."""
    tensors = _network().tensors() | {f"more-{number}": torch.ones(1) for number in range(30)}
    details = _details(tensors)
    assert len(details) == 21
    assert details[-1] == "the network has no tensor 10 others"


def test_a_network_that_classifies_has_no_fault() -> None:
    """One logit a class, all finite."""
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    assert forward_fault(_network(), images, 10) is None


def test_what_goes_wrong_in_a_forward_pass_is_said() -> None:
    """An exception, other outputs, or outputs that are no numbers."""
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    raised = forward_fault(_network(), images, 10)
    assert raised is not None
    assert "does not classify images of shape (3, 8, 8): RuntimeError" in raised.detail
    grey = images[:, :1]
    other = forward_fault(_network(num_classes=7), grey, 10)
    assert other is not None
    assert "(7,)" in other.detail
    network = _network()
    with torch.no_grad():
        network.get_parameter("body.classifier.bias").fill_(torch.nan)
    endless = forward_fault(network, grey, 10)
    assert endless is not None
    assert endless.at == "weights"
