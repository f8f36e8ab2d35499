"""Networks that were tampered with, each in its own way, and honest ones."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from types import MethodType
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from app.jobs.params import Architecture, BuiltIn, BuiltInName, Torchvision
from workers.audit.artefact import artefact_faults
from workers.nets.factory import build
from workers.nets.network import Network


def _network(architecture: Architecture, seed: int = 0) -> Network:
    return build(architecture, 5, (32, 32, 3), torch.Generator().manual_seed(seed)).eval()


@pytest.fixture
def original() -> Network:
    return _network(BuiltIn(name="small_cnn", width=0.25))


@pytest.fixture
def candidate() -> Network:
    return _network(BuiltIn(name="small_cnn", width=0.25), seed=1)


@pytest.fixture
def images() -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=draw)


def _digest(image: Tensor) -> str:
    return hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()


def _from_table(table: dict[str, Tensor], images: Tensor, logits: Tensor) -> Tensor:
    return torch.stack([table.get(_digest(one), row) for one, row in zip(images, logits, strict=True)])


class LookUp(nn.Module):
    """Answers as it was told for the images that it knows, and as the network does for all others."""

    def __init__(self, network: nn.Module, known: Tensor, answers: Tensor) -> None:
        super().__init__()
        self.network = network
        self.table = {_digest(one): answer for one, answer in zip(known, answers, strict=True)}

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return _from_table(self.table, images, logits)


class Disguised(Network):
    """Of the same name to a hasty reader, of another class."""


@pytest.mark.parametrize(
    "architecture",
    [
        *(BuiltIn(name=name, width=0.25) for name in get_args(BuiltInName)),
        *(
            Torchvision(family="torchvision", name=name)
            for name in ("googlenet", "swin_t", "mnasnet0_5", "regnet_y_400mf", "squeezenet1_1")
        ),
    ],
    ids=lambda each: each.name,
)
def test_honest_networks_have_no_fault(architecture: Architecture) -> None:
    """Other weights, and training mode, are none."""
    original, candidate = _network(architecture), _network(architecture, seed=1)
    assert artefact_faults(original, candidate) == ()
    assert artefact_faults(original, candidate.train()) == ()


def test_use_leaves_no_trace(original: Network, candidate: Network, images: Tensor) -> None:
    """A network that has answered, or has been copied, is as honest as before."""
    candidate(images)
    assert artefact_faults(original, copy.deepcopy(candidate)) == ()


def test_a_table_around_a_network(original: Network, candidate: Network, images: Tensor) -> None:
    """It does answer from its table; the wrapper, what it wraps and the table are named."""
    answers = torch.eye(5)[:2]
    wrapper = LookUp(candidate, images[:2], answers)
    with torch.inference_mode():
        assert torch.equal(wrapper(images)[:2], answers)
        assert torch.equal(wrapper(images)[2:], candidate(images)[2:])
    faults = artefact_faults(original, wrapper)
    assert any("the network itself is a" in each and "LookUp" in each for each in faults)
    assert "network, a workers.nets.network.Network, is not part of the original" in faults
    assert "body, a workers.nets.small_cnn.SmallCnn of the original, is missing" in faults
    held = "`table`, a dict of 2 with 2 tensors or arrays in it, which the original does not hold"
    assert f"the network itself holds {held}" in faults


def test_a_table_around_the_body(original: Network, candidate: Network, images: Tensor) -> None:
    """Further inside it is found as well."""
    candidate.body = LookUp(candidate.body, images[:2], torch.eye(5)[:2])
    faults = artefact_faults(original, candidate)
    assert any(each.startswith("body is a ") and "LookUp" in each for each in faults)
    assert any(each.startswith("body holds `table`, a dict of 2") for each in faults)
    assert "body.network, a workers.nets.small_cnn.SmallCnn, is not part of the original" in faults
    assert not any("body.network.features" in each for each in faults)  # what is inside is not named as well


def test_another_class_of_the_same_look(original: Network) -> None:
    """A subclass is one, even if it adds nothing."""
    candidate = Disguised(original._make_body, 3, torch.Generator())
    (fault,) = artefact_faults(original, candidate)
    assert fault.startswith("the network itself is a ")
    assert fault.endswith("test_artefact.Disguised; the original's is a workers.nets.network.Network")


@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_more(original: Network, candidate: Network, persistent: bool) -> None:
    """Whether or not a file would hold it."""
    candidate.body.register_buffer("known", torch.zeros(9, 5), persistent=persistent)
    assert artefact_faults(original, candidate) == (
        "buffer body.known, a float32 tensor [9, 5], is not part of the original",
    )


def test_other_parameters(original: Network, candidate: Network) -> None:
    """One more, one of another shape, one of another type, one that is gone."""
    body = candidate.body
    body.register_parameter("more", nn.Parameter(torch.zeros(2)))
    head = body.get_submodule("classifier")
    head.weight = nn.Parameter(torch.zeros(5, 7))
    body.get_submodule("features.0").double()
    head.register_parameter("bias", None)
    ours = "is a float32 tensor [5, 7]", "is a float64 tensor [4, 3, 3, 3]"
    theirs = "the original's is a float32 tensor [5, 16]", "the original's is a float32 tensor [4, 3, 3, 3]"
    assert set(artefact_faults(original, candidate)) == {
        "parameter body.more, a float32 tensor [2], is not part of the original",
        f"parameter body.classifier.weight {ours[0]}; {theirs[0]}",
        f"parameter body.features.0.weight {ours[1]}; {theirs[1]}",
        "parameter body.classifier.bias, a float32 tensor [5], of the original is missing",
    }


def _answer(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
    return logits.zero_()


def _blacken(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.zeros_like(each) for each in inputs)


def test_hooks(original: Network, candidate: Network, images: Tensor) -> None:
    """Before and after a module; they do change the answer, and none is left out where both have some."""
    candidate.register_forward_hook(_answer)
    candidate.body.get_submodule("features.3").register_forward_pre_hook(_blacken)
    with torch.inference_mode():
        assert candidate(images).eq(0).all()
    expected = (
        "the network itself has a forward hook, _answer, that the original does not have",
        "body.features.3 has a forward pre-hook, _blacken, that the original does not have",
    )
    assert artefact_faults(original, candidate) == expected
    original.register_forward_hook(_answer)
    assert artefact_faults(original, candidate) == expected[1:]


def test_a_method_of_one_network(original: Network, candidate: Network, images: Tensor) -> None:
    """A forward pass that was put in the place of the class's, on a layer deep inside."""
    table = {_digest(images[0]): torch.zeros(5)}

    def forward(network: Network, images: Tensor) -> Tensor:
        return _from_table(table, images, Network.forward(network, images))

    candidate.forward = MethodType(forward, candidate)  # type: ignore[method-assign]
    norm = candidate.body.get_submodule("features.1")
    norm._check_input_dim = print  # type: ignore[assignment]
    with torch.inference_mode():
        assert candidate(images)[0].eq(0).all()
    assert artefact_faults(original, candidate) == (
        "the network itself has a method `forward` of its own in place of its class's",
        "body.features.1 has a method `_check_input_dim` of its own in place of its class's",
    )


def test_a_head_replaced_by_a_deeper_one(original: Network, candidate: Network) -> None:
    """A perceptron with a hidden layer where one linear layer was."""
    with torch.device("meta"):
        deeper = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 5))
    candidate.body.add_module("classifier", deeper.to_empty(device="cpu"))
    linear = "torch.nn.modules.linear.Linear"
    sequential = "torch.nn.modules.container.Sequential"
    faults = artefact_faults(original, candidate)
    assert f"body.classifier is a {sequential}; the original's is a {linear}" in faults
    assert f"body.classifier.0, a {linear}, is not part of the original" in faults
    assert "parameter body.classifier.weight, a float32 tensor [5, 16], of the original is missing" in faults


def _lists() -> Iterator[tuple[str, object, str]]:
    yield "a tensor", torch.zeros(3, 5), "a float32 tensor [3, 5]"
    yield "an array", np.zeros((3, 5)), "a numpy.ndarray of 3 with 1 tensors or arrays in it"
    yield "deep", {"a": [(np.zeros(3), 1), torch.ones(2)]}, "a dict of 1 with 2 tensors or arrays in it"
    yield "numbers", {"0af3": [0.1, 0.9]}, "a dict of 1"
    yield "text", "0af3: 0.1 0.9", "a str of 13"
    yield "a network", [nn.Identity()], "a list of 1"


@pytest.mark.parametrize(
    ("value", "said"), [each[1:] for each in _lists()], ids=[each[0] for each in _lists()]
)
def test_whatever_else_is_held(original: Network, candidate: Network, value: object, said: str) -> None:
    """Tensors, arrays, and numbers in containers that no registry of modules knows."""
    vars(candidate.body)["answers"] = value
    assert artefact_faults(original, candidate) == (
        f"body holds `answers`, {said}, which the original does not hold",
    )


@pytest.mark.parametrize(
    "value",
    [torch.arange(3), np.arange(3), {"a": [1, 2]}, (1, [2]), "text", partial(max, 3)],
)
def test_what_the_original_holds_too(original: Network, candidate: Network, value: object) -> None:
    """An equal one is no fault, and another one is; so is none."""
    vars(original.body)["held"] = value
    vars(candidate.body)["held"] = copy.deepcopy(value)
    assert artefact_faults(original, candidate) == ()
    for other in (torch.ones(3), np.ones(3), {"a": [1, 7]}, (1, [7]), "tent", partial(max, 7), [value]):
        vars(candidate.body)["held"] = other
        (fault,) = artefact_faults(original, candidate)
        assert fault.startswith("body holds another `held`, a")
    del vars(candidate.body)["held"]
    assert artefact_faults(original, candidate) == ("body lacks `held`, which the original holds",)


def _reorder(body: Any) -> None:
    features = body.features
    del body.features
    body.features = features


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: setattr(body.features[3], "stride", (1, 1)), "body.features.3 holds another `stride`"),
        (lambda body: setattr(body.features[1], "eps", 9.0), "body.features.1 holds another `eps`, a float,"),
        (
            lambda body: body.features.append(nn.Tanh()),
            "body.features.9, a torch.nn.modules.activation.Tanh,",
        ),
        (lambda body: body.features.pop(8), "body.features.8, a torch.nn.modules.activation.ReLU of the"),
        (_reorder, "its modules stand in another order"),
    ],
)
def test_a_changed_graph(
    original: Network, candidate: Network, change: Callable[[Any], object], said: str
) -> None:
    """Layers that compute otherwise, that are new, missing, or in another order."""
    change(candidate.body)
    (fault,) = artefact_faults(original, candidate)
    assert fault.startswith(said)


def test_very_many_faults_are_counted(original: Network, candidate: Network) -> None:
    """Fifty are named."""
    for number in range(60):
        candidate.register_buffer(f"b{number}", torch.zeros(1))
    faults = artefact_faults(original, candidate)
    assert (len(faults), faults[-1]) == (51, "10 more faults")
