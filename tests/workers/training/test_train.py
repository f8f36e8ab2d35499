from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import Asam, BuiltIn, Objective, Plain, Sam, TrainingRecipe
from workers.data.batches import Batches, Rows
from workers.data.seeds import derived_seed, generator
from workers.monitor import Cancelled, Monitor, Silent
from workers.nets.factory import build
from workers.training.evaluate import accuracy
from workers.training.loop import Diverged, Trace
from workers.training.train import Lesson, fit


def _fit(
    rows: Rows, monitor: Monitor | None = None, seed: int = 0, **recipe: Any
) -> tuple[dict[str, Tensor], Trace]:
    network = build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(seed))
    given = {"epochs": 3, "batch_size": 32, "precision": "fp32", **recipe}
    trace = fit(network, Lesson(rows, TrainingRecipe(**given), seed), monitor or Silent())
    return network.state_dict(), trace


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_it_learns_the_digits(digits: Rows) -> None:
    """A small network fits 160 real digits, and the curve shows it, an entry an epoch."""
    network = build(BuiltIn(), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    recipe = TrainingRecipe(epochs=15, batch_size=32, precision="fp32")
    trace = fit(network, Lesson(digits, recipe, 0), Silent())
    assert accuracy(network, digits)["correct"] >= 155
    assert len(trace.curve) == 15
    assert trace.curve[-1]["train_loss"] < trace.curve[0]["train_loss"] / 4
    assert trace.passes == 15 * 5


@pytest.mark.parametrize("nesterov", [True, False])
def test_it_follows_the_recipe(digits: Rows, nesterov: bool) -> None:
    """Two epochs agree with PyTorch's own optimiser and a plain loop over the same batches and rates."""
    fitted, _ = _fit(digits, epochs=2, nesterov=nesterov, warmup_share=0.2, augmentation="flip")
    network = build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0)).train()
    network.normalise_by([digits.images])
    batches = Batches(digits, batch_size=32, augmentation="flip", seed=derived_seed(0, "train"))
    sgd = torch.optim.SGD(network.parameters(), momentum=0.9, nesterov=nesterov, weight_decay=5e-4)
    for step, share in enumerate([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]):
        sgd.param_groups[0]["lr"] = 0.05 * share
        batch = batches.at(step)
        sgd.zero_grad()
        torch.autograd.backward(functional.cross_entropy(network(batch.images), batch.labels))
        sgd.step()
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(fitted[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", [Plain(), Asam(name="asam")])
def test_the_seed_decides_every_bit(digits: Rows, objective: Objective) -> None:
    """Equal seeds train equal networks, another seed another one."""
    first, _ = _fit(digits, objective=objective, augmentation="flip_crop")
    assert _same(first, _fit(digits, objective=objective, augmentation="flip_crop")[0])
    assert not _same(first, _fit(digits, objective=objective, augmentation="flip_crop", seed=1)[0])


@pytest.mark.parametrize("objective", [Sam(name="sam", rho=0), Asam(name="asam", rho=0)])
def test_sharpness_without_a_step_is_plain_training(digits: Rows, objective: Objective) -> None:
    """rho = 0 trains the same network as the plain objective, statistics included, at twice the passes."""
    plain, trace = _fit(digits)
    sharp, sharp_trace = _fit(digits, objective=objective)
    assert _same(plain, sharp)
    assert sharp_trace.passes == 2 * trace.passes


@pytest.mark.parametrize("objective", [Sam(name="sam"), Asam(name="asam")])
def test_sharpness_changes_the_network(digits: Rows, objective: Objective) -> None:
    """With its default step the objective has an effect."""
    assert not _same(_fit(digits)[0], _fit(digits, objective=objective)[0])


@pytest.mark.parametrize("killed", [[2], [5], [9], [7, 4], [14]])
def test_resuming_gives_the_same_bits(digits: Rows, stops_after: Any, killed: list[int]) -> None:
    """Broken off once or twice and resumed: the bits, curve and passes of the undisturbed run."""
    whole, trace = _fit(digits, augmentation="flip", objective=Sam(name="sam"))
    checkpoint = None
    for steps in killed:
        monitor = stops_after(steps)
        monitor.checkpoint = checkpoint
        with pytest.raises(Cancelled):
            _fit(digits, monitor, augmentation="flip", objective=Sam(name="sam"))
        checkpoint = monitor.checkpoint
    resumed, resumed_trace = _fit(digits, Silent(checkpoint), augmentation="flip", objective=Sam(name="sam"))
    assert _same(whole, resumed)
    assert resumed_trace.curve == trace.curve
    assert (resumed_trace.steps, resumed_trace.passes) == (trace.steps, trace.passes)


def test_a_finished_run_is_not_repeated(digits: Rows) -> None:
    """Called again with its last checkpoint, training only hands back what there is."""
    monitor = Silent()
    whole, trace = _fit(digits, monitor)
    again, again_trace = _fit(digits, monitor)
    assert _same(whole, again)
    assert again_trace == trace


def test_bf16_trains_float32_weights(digits: Rows) -> None:
    """Weights stay float32, differ from float32 training, and learn as well."""
    full, full_trace = _fit(digits, epochs=8)
    half, half_trace = _fit(digits, epochs=8, precision="bf16")
    assert all(half[name].dtype == tensor.dtype for name, tensor in full.items())
    assert not _same(full, half)
    assert half_trace.curve[-1]["train_loss"] == pytest.approx(full_trace.curve[-1]["train_loss"], rel=0.1)


def test_divergence_is_said_not_trained_on(digits: Rows) -> None:
    """A loss that leaves the finite numbers ends the run with a clear error."""
    with pytest.raises(Diverged):
        _fit(digits, learning_rate=10, weight_decay=50.0, epochs=30)


class _Listener(Silent):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, int, int, dict[str, float]]] = []

    def progress(self, phase: str, done: int, total: int, **figures: float) -> None:
        self.heard.append((phase, done, total, figures))


def test_progress_is_told_every_step(digits: Rows) -> None:
    """Every step is reported, with the newest epoch's loss and accuracy once there is one."""
    listener = _Listener()
    _, trace = _fit(digits, listener)
    assert [(phase, done, total) for phase, done, total, _ in listener.heard] == [
        ("train", done, 15) for done in range(1, 16)
    ]
    assert listener.heard[3][3] == {}
    assert listener.heard[-1][3] == trace.curve[-1]


def test_large_sets_are_normalised_by_a_sample() -> None:
    """Of more than 50,000 rows always the same 50,000 give the constants; of fewer rows all do."""
    images = np.random.default_rng(0).integers(0, 256, (60_000, 2, 2, 1), dtype=np.uint8)
    rows = Rows.of(images, np.arange(60_000) % 2)
    recipe = TrainingRecipe(epochs=1, batch_size=30_000, precision="fp32")
    networks = [build(BuiltIn(width=0.1), 2, (2, 2, 1), generator(0, "initialise")) for _ in range(2)]
    for network in networks:
        fit(network, Lesson(rows, recipe, 0), Silent())
    assert torch.equal(networks[0].mean, networks[1].mean)
    mean = float(images.mean())
    assert 0 < abs(float(networks[0].mean) - mean) < 0.5
    part = rows.take(slice(0, 50_000))
    fit(networks[0], Lesson(part, recipe, 0), Silent())
    assert float(networks[0].mean) == pytest.approx(images[:50_000].mean(), rel=1e-6)
