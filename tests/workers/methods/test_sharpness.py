"""Sharpness against a quadratic worked by hand, finite differences and the whole Hessian's spectrum."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from app.jobs.params import BuiltIn
from workers.data.batches import Rows
from workers.methods.curvature import MeanLoss, Progress, Sample
from workers.methods.sharpness import Look, ascended, sharpness
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.gradients import Differentiable

_LONG = Look(rows=1000, iterations=300)
_SHORT = Look(rows=1000, iterations=2)


class _Valley(nn.Module):
    """Two logits whose cross-entropy with label 0 is w'Aw / 2, A = diag(1, 5, 3), at any image."""

    curvatures = (1.0, 5.0, 3.0)

    def __init__(self, at: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(at, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        loss = 0.5 * (torch.tensor(self.curvatures, dtype=torch.float64) * self.w.square()).sum()
        # log(1 + e^z) = loss, so that the label's -log p is the loss.
        return torch.stack([torch.zeros_like(loss), loss.expm1().log()]).expand(len(images), 2)


class _Gate(nn.Module):
    """Ten hard sigmoids."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(64, 10, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return functional.hardsigmoid(images.flatten(1).double() / 255 @ self.w)


@pytest.fixture
def zeros(digits: Rows) -> dict[str, Rows]:
    """Rows of label 0 alone."""
    rows = Rows(digits.images[:20], torch.zeros(20, dtype=torch.int64))
    return {"forget": rows.take(slice(8)), "retain": rows}


@pytest.fixture
def sets(digits: Rows) -> dict[str, Rows]:
    """30 rows to forget, 130 to keep."""
    return {"forget": digits.take(slice(30)), "retain": digits.take(slice(30, None))}


def _progress() -> Progress:
    return Progress(Silent(), 0)


def test_a_quadratic_by_hand(zeros: dict[str, Rows]) -> None:
    """At w = (1, 0, 2): g = (1, 0, 6), |g|^2 = 37, g'Ag = 109; the largest eigenvalue is 5, not along g."""
    look = Look(rho=0.05, iterations=500)
    found = sharpness(_Valley([1.0, 0.0, 2.0]), zeros, look=look, seed=0, monitor=Silent())
    expected = 0.05 * 37**0.5 + 0.05**2 / 2 * 109 / 37
    for name, rows in (("forget", 8), ("retain", 20)):
        assert found[name]["ascent"] == pytest.approx(expected, rel=1e-9)
        assert found[name]["top_eigenvalue"] == pytest.approx(5.0, rel=1e-3)
        assert found[name]["residual"] < 0.05
        assert found[name]["rows"] == rows


def test_agrees_with_a_step_taken_by_hand(
    two_layers: Network,
    sets: dict[str, Rows],
    brute_logits: Callable[[Tensor, Rows], Tensor],
    brute_gradient: Callable[[Tensor, Rows], Tensor],
) -> None:
    """The loss written out, at the weights and a step of length rho along its gradient."""
    at = parameters_to_vector(two_layers.parameters()).detach()
    found = sharpness(two_layers, sets, look=Look(rho=0.2, rows=1000), seed=0, monitor=Silent())
    for name, rows in sets.items():
        slope = brute_gradient(at, rows)
        here, there = (
            functional.cross_entropy(brute_logits(w, rows), rows.labels)
            for w in (at, at + 0.2 * slope / slope.norm())
        )
        assert found[name]["ascent"] == pytest.approx(float(there - here), rel=1e-9)


def test_agrees_with_finite_differences_of_gradients(
    two_layers: Network, sets: dict[str, Rows], brute_gradient: Callable[[Tensor, Rows], Tensor]
) -> None:
    """The whole Hessian, column by column, from the gradient on either side; then its largest eigenvalue."""
    at, h = parameters_to_vector(two_layers.parameters()).detach(), 1e-5
    found = sharpness(two_layers, sets, look=_LONG, seed=0, monitor=Silent())
    for name, rows in sets.items():
        columns = [
            (brute_gradient(at + h * unit, rows) - brute_gradient(at - h * unit, rows)) / (2 * h)
            for unit in torch.eye(460, dtype=torch.float64)
        ]
        spectrum = torch.linalg.eigvalsh(torch.stack(columns))
        value, largest = found[name]["top_eigenvalue"], float(spectrum[-1])
        assert value == pytest.approx(largest, rel=3e-3)  # the iteration ends where little changes
        assert abs(value - largest) <= found[name]["residual"] * value  # as for any symmetric matrix
        assert value > 1.1 * float(spectrum[-3])


def test_is_that_of_evaluation_mode(trained: Network, mixed: Rows) -> None:
    """Batch normalisation by its running statistics, whatever mode the network came in."""
    sets = {"forget": mixed.take(slice(24)), "retain": mixed.take(slice(24, None))}
    first, second = (
        sharpness(copy.deepcopy(trained).train(mode), sets, look=_SHORT, seed=0, monitor=Silent())
        for mode in (True, False)
    )
    assert first == second


@pytest.mark.parametrize("steps", [0, 4, 10**6])
def test_the_network_stays_bit_for_bit(
    steps: int, sets: dict[str, Rows], stops_after: Callable[[int], Silent]
) -> None:
    """Weights and running statistics, at the end and when the job is cancelled on the way."""
    network = build(BuiltIn(name="resnet8", width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    try:
        sharpness(network, sets, look=_SHORT, seed=0, monitor=stops_after(steps))
        assert steps > 10
    except Cancelled:
        assert steps <= 10
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(weight.grad is None for weight in network.parameters())


def test_without_a_second_derivative_the_rise_is_measured_all_the_same(digits: Rows) -> None:
    """PyTorch has none of hardsigmoid, which the gates of MobileNetV3 are."""
    found = sharpness(_Gate(), {"forget": digits}, look=_SHORT, seed=0, monitor=Silent())["forget"]
    assert found["ascent"] > 0
    assert found["top_eigenvalue"] is found["residual"] is None


def test_says_what_was_not_measured(two_layers: Network, digits: Rows) -> None:
    """No rows, and a network that is not finite: None."""
    sets = {"forget": digits.take(slice(0, 0)), "retain": digits}
    nothing = {"ascent": None, "top_eigenvalue": None, "residual": None}
    found = sharpness(two_layers, sets, look=_SHORT, seed=0, monitor=Silent())
    assert found["forget"] == nothing | {"rows": 0}
    with torch.no_grad():
        next(two_layers.parameters()).fill_(torch.inf)
    broken = sharpness(two_layers, sets, look=_SHORT, seed=0, monitor=Silent())
    assert broken["retain"] == nothing | {"rows": 160}


def test_what_it_costs(two_layers: Network, digits: Rows) -> None:
    """Three passes a batch for the rise, and two for each product with the Hessian."""
    model = Differentiable(two_layers)
    ascended(model, Sample(digits), rho=0.05, progress=_progress())
    assert model.passes == 3 * 2  # 160 rows are two batches
    summed = partial(functional.cross_entropy, reduction="sum")
    loss = MeanLoss(model, summed, weight_decay=0.0, progress=_progress())
    loss.product(Sample(digits), torch.ones(460, dtype=torch.float64))
    assert model.passes == 3 * 2 + 2 * 2
