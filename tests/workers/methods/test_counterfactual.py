from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm, rankdata
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from app.jobs.params import NegGrad, method_parameters
from workers.data.batches import Rows
from workers.methods.counterfactual import FEWEST_ROWS, Counterfactual, Scale, expected, standing_within
from workers.methods.neggrad import neggrad
from workers.methods.registry import METHODS
from workers.methods.run import Run
from workers.nets.network import Network
from workers.training.evaluate import accuracy, evaluate

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


def _scale(draw: np.random.Generator, classes: int, count: int) -> Scale:
    """Unseen rows of so many classes, the surer the likelier right."""
    losses = draw.exponential(1.0, (count, 1))
    return Scale(
        torch.tensor(losses).expand(-1, classes),
        torch.tensor(draw.random(count) < np.exp(-losses[:, 0])),
        torch.tensor(draw.integers(0, classes, count)),
    )


def test_standing_is_a_mid_rank() -> None:
    """Against scipy: (average rank - 1/2) / n among the rows of the class, those that remain included."""
    draw = np.random.default_rng(0)
    scores, labels = draw.integers(0, 9, 60).astype(float), draw.integers(0, 3, 60)
    expected_standing = np.empty(60)
    for number in range(3):
        here = labels == number
        expected_standing[here] = (rankdata(scores[here]) - 0.5) / here.sum()
    mine, others = slice(20), (torch.tensor(scores[20:]), torch.tensor(labels[20:]))
    found = standing_within(torch.tensor(scores[mine]), torch.tensor(labels[mine]), others)
    np.testing.assert_allclose(found.numpy(), expected_standing[mine], rtol=1e-12)


def test_the_guess_agrees_with_a_simulation() -> None:
    """Of a retrained network whose loss has a rank that agrees with standing by a normal copula."""
    draw = np.random.default_rng(1)
    scale = _scale(draw, 1, 400)
    standing = 0.5 + 0.5 * draw.random(30)  # the harder half
    labels = torch.zeros(30, dtype=torch.int64)
    found = expected(torch.tensor(standing), labels, scale, known=labels[:1])
    normal = 0.74 * norm.ppf(standing) + np.sqrt(1 - 0.74**2) * draw.standard_normal((20_000, 30))
    order = scale.losses.argsort()
    middles = (np.arange(400) + 0.5) / 400
    simulated_losses = np.interp(norm.cdf(normal), middles, scale.losses[order].numpy())
    simulated_hits = np.interp(norm.cdf(normal), middles, scale.hits[order].double().numpy())
    assert found.accuracy == pytest.approx(simulated_hits.mean(), abs=0.01)
    assert found.accuracy < scale.hits.double().mean() - 0.1
    quantiles = np.quantile(simulated_losses, (np.arange(30) + 0.5) / 30)
    np.testing.assert_allclose(found.losses.sort().values.numpy(), quantiles, rtol=0.06, atol=0.02)
    assert torch.equal(found.losses.argsort(), torch.tensor(standing).argsort())


def test_rows_like_all_others_are_met_as_unseen_rows_are() -> None:
    """With F spread evenly over its classes, the accuracy is the classes' own, mixed as F is."""
    draw = np.random.default_rng(2)
    scale = _scale(draw, 2, 1000)
    labels = torch.tensor([0] * 300 + [1] * 100)
    standing = standing_within(torch.tensor(draw.random(400)), labels)
    found = expected(standing, labels, scale, known=torch.arange(2))
    rates = [float(scale.hits[scale.labels == number].double().mean()) for number in (0, 1)]
    assert found.accuracy == pytest.approx(0.75 * rates[0] + 0.25 * rates[1], abs=0.01)


def test_a_class_of_which_nothing_remains_is_not_known_any_more() -> None:
    """Its rows count 0 and are met as those of other classes are, if these were labelled so."""
    draw = np.random.default_rng(3)
    surprise, labels = torch.tensor(draw.exponential(1.0, (60, 3))), torch.arange(60) % 3
    scale = Scale(surprise, torch.ones(60, dtype=torch.bool), labels)
    standing = torch.tensor((np.arange(40) + 0.5) / 40)
    found = expected(standing, torch.full((40,), 2), scale, known=torch.arange(2))
    assert found.accuracy == 0
    others = surprise[labels != 2, 2].sort().values.numpy()
    np.testing.assert_allclose(found.losses.numpy(), others, rtol=0.05, atol=0.05)
    of_these_alone = scale.like(2)
    assert (
        expected(standing, torch.full((40,), 2), of_these_alone, known=torch.arange(2)).losses.isinf().all()
    )


def test_a_class_that_few_unseen_rows_are_of_is_met_as_all_of_them_are() -> None:
    """Its own tell nothing."""
    scale = _scale(np.random.default_rng(3), 3, 50)
    few = Scale(scale.surprise, scale.hits, torch.where(torch.arange(50) < FEWEST_ROWS - 1, 1, 2))
    standing, labels = torch.tensor([0.5], dtype=torch.float64), torch.ones(1, dtype=torch.int64)
    found = expected(standing, labels, few, known=labels)
    alone = expected(
        standing, labels * 0, Scale(scale.surprise, scale.hits, labels.new_zeros(50)), known=labels * 0
    )
    assert (found.accuracy, found.losses) == (alone.accuracy, alone.losses)


def test_the_same_peoples_rows_come_first(judged: Callable[..., Run], unseen: Rows) -> None:
    """If there are enough of them: who never saw mislabellers' rows classifies hardly one as they did."""
    run = judged()
    assert run.kin is not None
    by_people, by_class = _guess(run), _guess(judged(kin=run.kin.take(slice(FEWEST_ROWS - 1))))
    counts = accuracy(run.network, run.kin)
    assert by_people.accuracy == pytest.approx(counts["correct"] / counts["n"], abs=0.05)
    assert by_people.accuracy < 0.2
    assert by_class.accuracy > 0.6
    assert by_people.losses.mean() > 3 * by_class.losses.mean()
    assert judged(kin=None, validation=unseen.take(slice(FEWEST_ROWS - 1))).counterfactual("fp32") is None


def test_late_learners_are_expected_to_be_forgotten(judged: Callable[..., Run]) -> None:
    """Without rows of the same people, standing tells hard rows from easy ones."""
    guesses = [
        _guess(judged(kin=None, standing=torch.linspace(low, low + 0.04, 24, dtype=torch.float64)))
        for low in (0.01, 0.5, 0.95)
    ]
    assert guesses[0].accuracy > guesses[1].accuracy > guesses[2].accuracy
    assert guesses[2].accuracy < _guess(judged(kin=None)).accuracy - 0.1


def _guess(run: Run) -> Counterfactual:
    found = run.counterfactual("fp32")
    assert found is not None
    return found


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
    ceilings = _guess(run).losses
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
            highest = float(_guess(run).losses.max())
            METHODS[name](run, method_parameters(name, hard | {"ceiling": ceiling}))
            logits = evaluate(run.network, run.forget)
            losses[ceiling] = float(functional.cross_entropy(logits, run.forget.labels)) / highest
        assert losses["unseen"] < 1.2, name
        assert losses["none"] > 1.5, name
