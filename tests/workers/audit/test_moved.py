from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from app.jobs.params import BuiltIn, BuiltInName
from workers.audit.moved import moved_figures
from workers.nets.factory import build


def _body(name: BuiltInName = "resnet8", seed: int = 0) -> nn.Module:
    return build(BuiltIn(name=name, width=0.25), 5, (32, 32, 3), torch.Generator().manual_seed(seed)).body


def _after(before: nn.Module, **changes: Tensor) -> nn.Module:
    """A copy with some tensors replaced, `__` for the dots of their names."""
    after = copy.deepcopy(before)
    named = {name.replace("__", "."): tensor for name, tensor in changes.items()}
    after.load_state_dict(after.state_dict() | named)
    return after


@pytest.fixture
def small() -> nn.Module:
    """Two layers: 3 x 2 weights and 2 biases of length 5 each, and a last one of 4 zeros."""
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    tensors = {
        "0.weight": torch.tensor([[3.0, 0.0], [0.0, 4.0]]),
        "0.bias": torch.tensor([3.0, 4.0]),
        "2.weight": torch.zeros(1, 2),
        "2.bias": torch.tensor([5.0]),
    }
    network.load_state_dict(tensors, assign=True)
    return network


def test_by_hand(small: nn.Module) -> None:
    """One weight moved by 1.5 of a tensor as long as 5, the bias by 6 of 5; the whole is as long as 75^.5."""
    after = _after(
        small, **{"0__weight": torch.tensor([[3.0, 1.5], [0.0, 4.0]]), "2__bias": torch.tensor([11.0])}
    )
    assert moved_figures(small, after) == {
        "tensors": 4,
        "changed": 2,
        "share": 2 / 9,
        "relative": pytest.approx((1.5**2 + 6**2) ** 0.5 / 75**0.5),
        "head_only": False,
        "layers": [
            {"name": "2.bias", "relative": pytest.approx(6 / 5), "changed": 1.0},
            {"name": "0.weight", "relative": pytest.approx(1.5 / 5), "changed": 0.25},
        ],
    }


def test_nothing_moved(small: nn.Module) -> None:
    """Then it is not even the head alone; and of no tensor there is no share."""
    found = moved_figures(small, copy.deepcopy(small))
    assert (found["changed"], found["share"], found["relative"], found["head_only"]) == (0, 0, 0, False)
    assert found["layers"] == []
    assert moved_figures(nn.ReLU(), nn.ReLU()) == {
        **dict.fromkeys(("tensors", "changed"), 0),
        "share": None,
        "relative": 0.0,
        "head_only": False,
        "layers": [],
    }


def test_two_networks_agree_with_numpy() -> None:
    """Over all values at once, and the twenty tensors that moved most, in order."""
    before, after = _body("mobilenet_v2"), _body("mobilenet_v2", seed=1)
    found = moved_figures(before, after)
    tensors = [
        {name: each.numpy().astype(float) for name, each in body.state_dict().items() if each.dim()}
        for body in (before, after)
    ]
    flat = [np.concatenate([each.ravel() for each in part.values()]) for part in tensors]
    assert found["tensors"] == len(tensors[0])
    assert found["share"] == pytest.approx((flat[0] != flat[1]).mean())
    assert found["relative"] == pytest.approx(np.linalg.norm(flat[1] - flat[0]) / np.linalg.norm(flat[0]))
    ratios = {
        name: np.linalg.norm(tensors[1][name] - each) / np.linalg.norm(each)
        for name, each in tensors[0].items()
        if np.linalg.norm(each)
    }
    largest = sorted(ratios, key=lambda name: ratios[name], reverse=True)[:20]
    assert [layer["name"] for layer in found["layers"]] == largest
    assert [layer["relative"] for layer in found["layers"]] == pytest.approx(
        [ratios[name] for name in largest]
    )


@pytest.mark.parametrize(
    ("name", "changes", "head_only"),
    [
        ("resnet8", ("classifier.weight",), True),
        ("resnet8", ("classifier.weight", "classifier.bias"), True),
        ("vit_small", ("classifier.bias",), True),
        ("vit_small", ("norm.weight",), False),
        ("small_cnn", ("classifier.weight", "features.0.weight"), False),
        (
            "small_cnn",
            ("classifier.weight", "features.1.running_mean", "features.1.num_batches_tracked"),
            True,
        ),
        ("small_cnn", ("features.1.running_mean",), False),
    ],
)
def test_the_head_alone(name: BuiltInName, changes: tuple[str, ...], head_only: bool) -> None:
    """Its weight, its bias or both; running statistics move with it, but they are not it."""
    before = _body(name)
    state = before.state_dict()
    after = _after(before, **{each.replace(".", "__"): state[each] + 1 for each in changes})
    found = moved_figures(before, after)
    assert found["head_only"] is head_only
    assert found["changed"] == sum("tracked" not in each for each in changes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_what_is_no_number_has_no_ratio(small: nn.Module, value: float) -> None:
    """Nor has a tensor that was all zeros; both come before what moved by a finite ratio."""
    changes: dict[str, Any] = {
        "0__weight": torch.eye(2),
        "0__bias": torch.tensor([value, 4.0]),
        "2__weight": torch.ones(1, 2),
    }
    found = moved_figures(small, _after(small, **changes))
    assert [layer["name"] for layer in found["layers"]] == ["0.bias", "2.weight", "0.weight"]
    assert [layer["relative"] for layer in found["layers"][:2]] == [None, None]
    assert found["relative"] is None
    assert found["share"] == 5 / 9


def test_a_nan_that_stays_has_not_moved(small: nn.Module) -> None:
    """Equal bits are no change, and then the ratio is 0."""
    spoilt = _after(small, **{"0__bias": torch.tensor([float("nan"), 4.0])})
    found = moved_figures(spoilt, copy.deepcopy(spoilt))
    assert (found["changed"], found["share"], found["relative"]) == (0, 0, 0)


def test_other_tensors_cannot_be_compared(small: nn.Module) -> None:
    """Another width, or another architecture."""
    with pytest.raises(ValueError, match="other tensors"):
        moved_figures(small, _body())
