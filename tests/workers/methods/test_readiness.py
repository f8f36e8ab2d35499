from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from app.jobs.params import TrainingRecipe
from workers.data.batches import Rows
from workers.methods.curvature import MeanLoss, Progress, Sample
from workers.methods.readiness import Subject, effort, readiness, sentence, top_eigenvalue
from workers.monitor import Cancelled, Silent
from workers.nets.network import Network
from workers.training.gradients import Differentiable
from workers.training.schedule import LearningRate


def _summed(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum")


def _subject(network: Network, rows: Rows, validation: Rows, **changes: Any) -> Subject:
    given: dict[str, Any] = {
        "network": network,
        "rows": rows,
        "validation": validation,
        "recipe": TrainingRecipe(epochs=2, batch_size=64, momentum=0.5),
        "beginning": torch.zeros(460, dtype=torch.float64),
        "doubts": np.linspace(0, 1, len(rows)),
        "seed": 1,
        "monitor": Silent(),
    }
    return Subject(**(given | changes))


def test_the_largest_eigenvalue_is_that_of_the_whole_hessian(two_layers: Network, digits: Rows) -> None:
    """Power iteration agrees with the spectrum of the Hessian in one piece, and says how well."""
    loss = MeanLoss(Differentiable(two_layers), _summed, weight_decay=0.0, progress=Progress(Silent(), 0))
    spectrum = torch.linalg.eigvalsh(loss.hessian(Sample(digits)))
    found = top_eigenvalue(loss, Sample(digits), iterations=300, seed=0)
    assert found["eigenvalue"] == pytest.approx(float(spectrum[-1]), rel=1e-3)
    assert found["residual"] < 0.05
    assert found["iterations"] < 300
    squared = float(parameters_to_vector(two_layers.parameters()).detach().square().sum())
    assert found["times_squared_norm"] == pytest.approx(found["eigenvalue"] * squared)


class _Quadratic(nn.Module):
    """Of one weight each, a loss sum(k w^2) / 2: the Hessian is diag(k)."""

    def __init__(self, curvatures: list[float]) -> None:
        super().__init__()
        self.curvatures = torch.tensor(curvatures, dtype=torch.float64)
        self.w = nn.Parameter(torch.ones(len(curvatures), dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return 0.5 * (self.curvatures * self.w.square()).sum().expand(len(images))


@pytest.mark.parametrize(
    ("curvatures", "largest"),
    [([1.0, 3.0, -0.5], 3.0), ([-5.0, 2.0, 1.0], 2.0), ([-5.0, -2.0], -2.0), ([0.0, 0.0], 0.0)],
)
def test_a_large_negative_eigenvalue_is_not_mistaken_for_the_largest(
    digits: Rows, curvatures: list[float], largest: float
) -> None:
    """What is wanted is the largest, not that of the largest size."""
    loss = MeanLoss(
        Differentiable(_Quadratic(curvatures)),
        lambda outputs, _: outputs.sum(),
        weight_decay=0.0,
        progress=Progress(Silent(), 0),
    )
    found = top_eigenvalue(loss, Sample(digits), iterations=400, seed=0)
    assert found["eigenvalue"] == pytest.approx(largest, abs=1e-2)


def test_too_few_iterations_are_told_by_the_residual(two_layers: Network, digits: Rows) -> None:
    """One product is no more than a glance."""
    loss = MeanLoss(Differentiable(two_layers), _summed, weight_decay=0.0, progress=Progress(Silent(), 0))
    found = top_eigenvalue(loss, Sample(digits), iterations=1, seed=0)
    assert found["iterations"] == 1
    assert found["residual"] > 0.5


def test_figures_by_hand(two_layers: Network, digits: Rows) -> None:
    """Gradients, distance, error and tail, from autograd and the formulas written out."""
    rows, validation = digits.take(slice(0, 128)), digits.take(slice(128, 160))
    found = readiness(_subject(two_layers, rows, validation), rows=1000, iterations=40)
    at = parameters_to_vector(two_layers.parameters()).detach()

    def gradient(part: Rows) -> Tensor:
        loss = functional.cross_entropy(two_layers(part.images), part.labels)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(two_layers.parameters()))])

    whole, halves = gradient(rows), [gradient(rows.take(slice(s, s + 64))) for s in (0, 64)]
    for name, expected in {
        "l1": whole.abs().sum(),
        "l2": whole.norm(),
        "weighted_l1": (whole * at).abs().sum(),
        "weighted_l2": (whole * at).norm(),
    }.items():
        assert found["gradient"]["mean"][name] == pytest.approx(float(expected), rel=1e-9)
    batch = float(sum(half.abs().sum() for half in halves)) / 2
    assert found["gradient"]["batch"]["l1"] == pytest.approx(batch, rel=1e-9)

    rate = LearningRate(peak=0.05, steps=4, schedule="linear", warmup_share=0.15)
    eta, top = sum(map(rate.at, range(4))) / 4 * 2, found["curvature"]["eigenvalue"]  # 1 / (1 - .5)
    distance = float(at.norm())
    assert found["unrolled"] == pytest.approx(
        {
            "steps": 4,
            "mean_rate": eta,
            "distance": distance,
            "error": eta**2 * top * distance / 4 * (16 - 4) / 2,
            "bound": eta * top * distance * 3 / 2,
        }
    )
    assert found["memorisation"]["late"] == pytest.approx(0.5)
    assert found["memorisation"]["quantiles"]["0.9"] == pytest.approx(0.9)
    shares = [found["accuracy"][name]["correct"] / found["accuracy"][name]["n"] for name in found["accuracy"]]
    assert found["gap"] == pytest.approx(shares[0] - shares[1])
    assert found["rows"] == 128


def test_what_is_not_known_is_not_invented(two_layers: Network, digits: Rows) -> None:
    """No recipe, no record, no validation rows: the rest is measured all the same."""
    bare = _subject(two_layers, digits, digits.take(slice(0, 0)), recipe=None, beginning=None, doubts=None)
    found = readiness(bare, rows=100, iterations=3)
    assert (found["unrolled"], found["memorisation"], found["gap"]) == (None, None, None)
    assert (found["effort"], found["rows"]) == ("unknown", 100)
    adam = _subject(two_layers, digits, digits, recipe=TrainingRecipe(optimiser="adamw"))
    assert readiness(adam, rows=100, iterations=1)["unrolled"] is None


@pytest.mark.parametrize(
    ("gap", "late", "expected", "begin"),
    [
        (0.01, 0.3, "small", "Unlearning should be easy"),
        (0.1, None, "moderate", "Unlearning should be feasible"),
        (0.33, 0.3, "large", "Unlearning will be hard"),
        (None, 0.3, "large", "Unlearning will be hard"),
        (None, None, "unknown", "How hard unlearning will be cannot be said"),
    ],
)
def test_one_sentence_says_how_hard_it_will_be(
    gap: float | None, late: float | None, expected: str, begin: str
) -> None:
    """By the gap, or by the tail where there is none; with the figures that say so."""
    found = {"gap": gap, "memorisation": None if late is None else {"late": late}}
    assert effort(found) == expected
    said = sentence(found)
    assert said.startswith(begin)
    assert said.count(".") == 1
    assert ("30%" in said) == (late is not None)
    assert ("33 points" in said) == (gap == 0.33)


def test_a_memorising_network_is_told_from_one_that_is_not(
    trained: Network, mixed: Rows, unseen: Rows
) -> None:
    """Wrong labels that were learned by heart make it hard; the network is as it was, in float32."""
    network = copy.deepcopy(trained)
    before = copy.deepcopy(network.state_dict())
    wrong = Rows(unseen.images, (unseen.labels + 3) % 10)
    easy, hard = (
        readiness(_subject(network, mixed, rows, beginning=None, doubts=None), rows=160, iterations=20)
        for rows in (unseen, wrong)
    )
    assert hard["effort"] == "large"
    assert easy["gap"] < hard["gap"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_it_can_be_cancelled(two_layers: Network, digits: Rows, stops_after: Any) -> None:
    """Between two batches."""
    with pytest.raises(Cancelled):
        readiness(_subject(two_layers, digits, digits, monitor=stops_after(3)), rows=160, iterations=5)
