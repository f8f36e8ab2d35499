from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from app.jobs.params import GradientReversal, TrainingRecipe
from workers.data.batches import Batches, Rows
from workers.data.seeds import derived_seed, generator
from workers.methods.curvature import NoStep
from workers.methods.gradient_reversal import gradient_reversal, pulls, shares
from workers.methods.past import Past, State
from workers.methods.run import Run
from workers.monitor import Cancelled, Monitor, Silent
from workers.nets.network import Network
from workers.training.optimiser import Sgd
from workers.training.schedule import LearningRate
from workers.training.train import Lesson, fit

FORGOTTEN = torch.tensor([3, 50, 51, 90, 120, 159])
RECIPE = TrainingRecipe(
    epochs=4, batch_size=32, learning_rate=0.01, momentum=0.5, nesterov=False, precision="fp32"
)


def _body(draw: torch.Generator) -> nn.Module:
    """64 pixels, 12 tanh units, 10 classes: no row's output depends on the others in its batch."""
    with torch.device("meta"):
        body = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))
    body.to_empty(device="cpu")
    with torch.no_grad():
        for weight in body.parameters():
            weight.copy_(0.2 * torch.randn(weight.shape, generator=draw))
    return body


def _fresh(seed: int = 7) -> Network:
    return Network(_body, 1, generator(seed, "initialise"))


Trained = Callable[..., Run]


@pytest.fixture
def trained(digits: Rows) -> Trained:
    """A run on a network that was trained on 160 digits, its trajectory kept, of which six are to go."""

    def train(monitor: Monitor | None = None, **recipe: Any) -> Run:
        network, kept = _fresh(), list[State]()

        def keep() -> str:
            tensors = {name: tensor.clone() for name, tensor in network.tensors().items()}
            kept.append((tensors, network.facts()))
            return str(len(kept))

        chosen = replace(RECIPE, **recipe)
        fit(network, Lesson(digits, chosen, 7, keep=keep), Silent())
        remain = torch.ones(160, dtype=torch.bool)
        remain[FORGOTTEN] = False
        return Run(
            network=network,
            retain=digits.take(torch.nonzero(remain).squeeze(1)),
            forget=digits.take(FORGOTTEN),
            recipe=chosen,
            seed=1,
            monitor=monitor or Silent(),
            past=Past(
                count=160,
                forgotten=FORGOTTEN,
                rows=lambda: digits,
                seed=7,
                device_type="cpu",
                snapshots=[partial(kept.__getitem__, number) for number in range(len(kept))],
            ),
        )

    return train


def _verified(run: Run, **given: Any) -> dict[str, float]:
    gradient_reversal(run, GradientReversal(verify=True, precision="fp32", **given))
    found = run.judged["verification"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_is_left_of_a_gradient_is_found_by_repeating_the_steps(momentum: float, nesterov: bool) -> None:
    """SGD with a gradient of 1 at one step, and none at the others, ends at -c of that step."""
    recipe = replace(RECIPE, momentum=momentum, nesterov=nesterov, weight_decay=0.3, learning_rate=0.1)
    rate = LearningRate(peak=0.1, steps=12, schedule="linear", warmup_share=0.15)
    for step, pull in enumerate(pulls(recipe, 12)):
        weight = [torch.zeros(1, dtype=torch.float64)]
        mover = Sgd(weight, momentum=momentum, nesterov=nesterov, weight_decay=0.3)
        for number in range(12):
            mover.step([torch.full((1,), float(number == step), dtype=torch.float64)], rate.at(number))
        assert float(weight[0]) == pytest.approx(-pull, rel=1e-9)


def test_a_row_has_its_share_of_the_batch_that_it_was_in(trained: Trained) -> None:
    """Once an epoch, by the batches that training drew."""
    past = trained(epochs=1).past
    assert past is not None
    found, taken = shares(past, RECIPE), pulls(RECIPE, 20)
    rows = Rows(torch.zeros(160, 1, 1, 1), torch.zeros(160))
    batches = Batches(rows, batch_size=32, seed=derived_seed(7, "train"))
    for epoch, (column, row) in product(range(4), enumerate(FORGOTTEN.tolist())):
        (step,) = [s for s in range(5 * epoch, 5 * epoch + 5) if row in batches.places(s)]
        assert float(found[epoch, column]) == pytest.approx(taken[step] / 32, rel=1e-9)


def test_what_is_given_back_is_the_sum_of_the_rows_gradients(trained: Trained) -> None:
    """At each epoch's first weights, by autograd and written-out sums."""
    run = trained()
    past = run.past
    assert past is not None
    before = parameters_to_vector(run.network.parameters()).detach().clone()
    trace = gradient_reversal(run, GradientReversal(precision="fp32", scale=0.5))
    expected, forget = torch.zeros_like(before), run.forget.take(slice(None))
    for opened, weights in zip(past.snapshots, shares(past, run.recipe), strict=True):
        at = _fresh()
        at.load(*opened())
        losses = nn.functional.cross_entropy(at(forget.images), forget.labels, reduction="none")
        slopes = torch.autograd.grad((losses * weights.float()).sum(), list(at.parameters()))
        expected += 0.5 * torch.cat([slope.flatten() for slope in slopes])
    after = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(after - before, expected, rtol=1e-3, atol=1e-7)
    assert trace.passes == 4
    assert trace.curve[0]["moved"] == pytest.approx(float(expected.norm() / before.norm()), rel=1e-3)


def test_with_small_steps_it_is_retraining_to_first_order(trained: Trained) -> None:
    """The error falls with the square of the rate, where the distance to retraining falls with the rate."""
    small, large = (_verified(trained(learning_rate=rate)) for rate in (1e-3, 1e-2))
    assert small["error"] < 0.01 * small["doing_nothing"]
    assert large["doing_nothing"] == pytest.approx(10 * small["doing_nothing"], rel=0.1)
    assert large["error"] > 30 * small["error"]


def test_the_trajectory_is_a_better_anchor_than_its_ends(trained: Trained) -> None:
    """After a training that moved the weights far, gradients of its beginning or end alone mislead."""
    errors = {
        anchor: _verified(trained(epochs=8, learning_rate=0.05), anchor=anchor)["error"]
        for anchor in ("trajectory", "initial", "final")
    }
    assert errors["trajectory"] < min(errors["initial"], errors["final"])


def test_verification_leaves_the_result_as_it_is(trained: Trained) -> None:
    """The repeated training is set aside; without the rows it ends where a training without them does."""
    plain, verified = trained(), trained()
    gradient_reversal(plain, GradientReversal(precision="fp32"))
    found = _verified(verified)
    for one, other in zip(plain.network.parameters(), verified.network.parameters(), strict=True):
        assert torch.equal(one, other)
    assert 0 < found["error"] < found["norm"]


@pytest.mark.parametrize(
    ("changes", "recipe", "parameters", "reason"),
    [
        ({"past": None}, {}, {}, "not on record"),
        ({}, {"optimiser": "adamw"}, {}, "SGD alone"),
        ({"device_type": "cuda"}, {}, {}, "another kind of device"),
        ({"snapshots": []}, {}, {}, "kept no trajectory"),
        ({"rows": None}, {}, {"verify": True}, "cannot be repeated"),
    ],
)
def test_it_says_why_it_cannot(
    trained: Trained, changes: dict[str, Any], recipe: dict[str, Any], parameters: dict[str, Any], reason: str
) -> None:
    """What is missing is named; nothing is guessed."""
    run = trained(epochs=1)
    assert run.past is not None
    past = None if "past" in changes else replace(run.past, **changes)
    run = replace(run, past=past, recipe=replace(run.recipe, **recipe))
    with pytest.raises(NoStep, match=reason):
        gradient_reversal(run, GradientReversal(precision="fp32", **parameters))


def test_without_a_trajectory_the_ends_still_serve(trained: Trained) -> None:
    """The first weights are drawn again from the seed: those that the first epoch began with."""
    run, again = trained(epochs=1), trained(epochs=1)
    assert run.past is not None
    gradient_reversal(run, GradientReversal(precision="fp32"))
    bare = replace(again, past=replace(run.past, snapshots=[]))
    gradient_reversal(bare, GradientReversal(precision="fp32", anchor="initial"))
    found, expected = (parameters_to_vector(each.network.parameters()) for each in (bare, run))
    assert torch.equal(found, expected)


def test_a_verification_is_resumed(trained: Trained, stops_after: Any) -> None:
    """Broken off in the repeated training and run again: the same figures."""
    whole = _verified(trained())
    monitor = stops_after(15)
    run = trained(monitor)
    with pytest.raises(Cancelled):
        _verified(run)
    assert monitor.checkpoint is not None
    again = _verified(trained(Silent(monitor.checkpoint)))
    assert again == pytest.approx(whole)


def test_a_batch_without_its_rows_counts_as_before(digits: Rows) -> None:
    """Of absent rows nothing is learned, and the others weigh what they weighed, as in a plain loop."""
    absent = torch.zeros(160, dtype=torch.bool)
    absent[FORGOTTEN] = True
    network, twin = _fresh(), _fresh()
    recipe = replace(RECIPE, weight_decay=0.0, momentum=0.0, schedule="constant", warmup_share=0.0, epochs=2)
    fit(network, Lesson(digits, recipe, 7, absent=absent), Silent())
    twin.normalise_by([digits.images])
    batches = Batches(digits, batch_size=32, seed=derived_seed(7, "train"))
    for step in range(10):
        places = batches.places(step)
        rows = digits.take(places[~absent[places]])
        loss = nn.functional.cross_entropy(twin(rows.images), rows.labels, reduction="sum") / len(places)
        slopes = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for weight, slope in zip(twin.parameters(), slopes, strict=True):
                weight.sub_(slope, alpha=0.01)
    found, expected = (parameters_to_vector(one.parameters()) for one in (network, twin))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_a_batch_of_which_nothing_is_left_is_no_step(digits: Rows) -> None:
    """Where all rows of a batch are absent, weights and momentum stay."""
    few = digits.take(slice(0, 8))
    absent = torch.tensor([True] * 7 + [False])
    recipe = replace(RECIPE, batch_size=1, epochs=1)
    network = _fresh()
    trace = fit(network, Lesson(few, recipe, 7, absent=absent), Silent())
    assert trace.passes == 1
