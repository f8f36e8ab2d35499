from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from app.jobs.params import NegGrad, method_parameters
from workers.data.batches import Rows
from workers.methods.ceilings import FEWEST_ROWS, loss_ceilings, matched_by_rank
from workers.methods.neggrad import neggrad
from workers.methods.registry import METHODS
from workers.methods.run import Run
from workers.nets.network import Network
from workers.training.evaluate import evaluate

Brute = Callable[[Tensor, Rows], Tensor]


@pytest.fixture
def brute_ascent(brute_logits: Brute, brute_gradient: Brute) -> Callable[..., Tensor]:
    """The gradient of the batch's mean cross-entropy, of the rows below their ceilings alone."""

    def gradient(flat: Tensor, batch: Rows, ceilings: Tensor) -> Tensor:
        losses = functional.cross_entropy(brute_logits(flat, batch), batch.labels, reduction="none")
        (below,) = torch.nonzero(losses < ceilings, as_tuple=True)
        if not len(below):
            return torch.zeros_like(flat)
        return brute_gradient(flat, batch.take(below)) * len(below) / len(batch)

    return gradient


def test_each_row_gets_its_classes_quantile() -> None:
    """Against numpy, class by class: the i-th smallest loss of n gets the quantile (i + 1/2) / n."""
    draw = np.random.default_rng(0)
    labels, losses = draw.integers(0, 3, 40), draw.exponential(0.1, 40)
    unseen_labels, unseen = draw.integers(0, 3, 200), draw.exponential(1.0, 200)
    expected = np.empty(40)
    for number in range(3):
        own = np.flatnonzero(labels == number)
        for place, row in enumerate(own[np.argsort(losses[own])]):
            expected[row] = np.quantile(unseen[unseen_labels == number], (place + 0.5) / len(own))
    found = matched_by_rank(
        torch.tensor(losses),
        torch.tensor(labels),
        torch.tensor(unseen),
        torch.tensor(unseen_labels),
        known=torch.arange(3),
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_a_class_of_which_nothing_remains_has_no_ceiling() -> None:
    """Nothing could have taught it; a class that few unseen rows are of takes those of all classes."""
    losses, labels = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 1])
    unseen = torch.linspace(1, 2, FEWEST_ROWS + 1)
    unseen_labels = torch.tensor([0] * FEWEST_ROWS + [1])
    found = matched_by_rank(losses, labels, unseen, unseen_labels, known=torch.tensor([1]))
    assert found[0] == torch.inf
    torch.testing.assert_close(found[1:], torch.quantile(unseen, torch.tensor([0.25, 0.75])))


def test_the_same_peoples_rows_come_first(start: Callable[..., Run], unseen: Rows) -> None:
    """If there are enough of them; without any unseen rows, or none wanted, nothing is bounded."""
    kin, few = unseen.take(slice(FEWEST_ROWS)), unseen.take(slice(FEWEST_ROWS - 1))
    by_people = loss_ceilings(start(kin=kin, validation=unseen), "unseen", "fp32")
    by_class = loss_ceilings(start(validation=unseen), "unseen", "fp32")
    assert torch.equal(by_people, loss_ceilings(start(validation=kin), "unseen", "fp32"))
    assert torch.equal(by_class, loss_ceilings(start(kin=few, validation=unseen), "unseen", "fp32"))
    assert not torch.equal(by_people, by_class)
    assert loss_ceilings(start(kin=few, validation=few), "unseen", "fp32").isinf().all()
    assert loss_ceilings(start(validation=unseen), "none", "fp32").isinf().all()


def test_neggrad_is_its_twin(
    judged: Callable[..., Run],
    two_layers: Network,
    brute_gradient: Brute,
    brute_ascent: Callable[..., Tensor],
    descend: Callable[..., Tensor],
) -> None:
    """Five steps in float64 on alpha CE(R) - (1 - alpha) CE(rows of F below their ceilings)."""
    p = NegGrad(
        steps=5,
        alpha=0.4,
        learning_rate=0.3,
        ceiling="unseen",
        forget_batch_size=9,
        precision="fp32",
        readings=0,
    )
    run = judged(network=copy.deepcopy(two_layers))
    ceilings = loss_ceilings(run, "unseen", "fp32")
    bounded: list[bool] = []
    neggrad(run, p)
    forget = run.forget_batches(9)

    def gradient(w: Tensor, step: int) -> Tensor:
        batch, mine = forget.at(step), ceilings[forget.places(step)]
        pushed = brute_ascent(w, batch, mine)
        bounded.append(not torch.allclose(pushed, brute_gradient(w, batch)))
        return 0.4 * brute_gradient(w, run.retain_batches(64).at(step)) - 0.6 * pushed

    expected = descend(parameters_to_vector(two_layers.parameters()).detach(), p, gradient)
    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-11)
    assert any(bounded)


def test_what_is_forgotten_is_not_pushed_further(judged: Callable[..., Run]) -> None:
    """A hard and long ascent ends at the losses of unseen rows, where one without ceilings has no end."""
    hard: dict[str, Any] = {"steps": 150, "alpha": 0.3, "precision": "fp32", "readings": 0}
    for name in ("neggrad", "sharp_minmax"):
        losses: dict[str, float] = {}
        for ceiling in ("none", "unseen"):
            run = judged()
            highest = float(loss_ceilings(run, "unseen", "fp32").max())
            METHODS[name](run, method_parameters(name, hard | {"ceiling": ceiling}))
            logits = evaluate(run.network, run.forget)
            losses[ceiling] = float(functional.cross_entropy(logits, run.forget.labels)) / highest
        assert losses["unseen"] < 1, name
        assert losses["none"] > 1.5, name
