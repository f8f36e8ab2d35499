"""What a recipe can ask for, in whole trainings on real digits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import BuiltIn, GradientSparsity, StdLoss, TrainingObjective, TrainingRecipe
from workers.data.batches import Batches, Rows
from workers.data.seeds import derived_seed
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.confidence import Confidence
from workers.training.evaluate import accuracy
from workers.training.loop import Trace
from workers.training.train import Lesson, NoValidation, fit

EXACT = GradientSparsity(name="gradient_sparsity", form="exact", rho=1e-3)
DIFFERENCE = GradientSparsity(name="gradient_sparsity", rho=1e-3)


def _network() -> Network:
    return build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))


def _recipe(**given: Any) -> TrainingRecipe:
    return TrainingRecipe(**{"epochs": 3, "batch_size": 32, "precision": "fp32", **given})


def _fit(
    rows: Rows, monitor: Silent | None = None, validation: Rows | None = None, **given: Any
) -> tuple[dict[str, Tensor], Trace]:
    network = _network()
    trace = fit(network, Lesson(rows, _recipe(**given), 0, validation=validation), monitor or Silent())
    return network.state_dict(), trace


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_everything_at_once_is_a_plain_loop_of_pytorch(digits: Rows) -> None:
    """AdamW, clipping, smoothing, std-loss, accumulation, one cycle and averaging, against PyTorch's own."""
    fitted, trace = _fit(
        digits,
        epochs=2,
        optimiser="adamw",
        second_momentum=0.99,
        learning_rate=0.01,
        weight_decay=0.1,
        clip_norm=0.7,
        label_smoothing=0.1,
        accumulation=3,
        schedule="one_cycle",
        warmup_share=0.3,
        averaging=0.5,
        objective=StdLoss(name="std_loss", gamma=2.0),
    )
    network = _network().train()
    network.normalise_by([digits.images])
    batches = Batches(digits, batch_size=32, seed=derived_seed(0, "train"))
    adam = torch.optim.AdamW(network.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        adam, max_lr=0.01, total_steps=10, pct_start=0.3, cycle_momentum=False
    )
    average = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for step in range(10):
        batch = batches.at(step)
        adam.zero_grad()
        for images, labels in zip(batch.images.tensor_split(3), batch.labels.tensor_split(3), strict=True):
            logits = network(images)
            loss = functional.cross_entropy(logits, labels, label_smoothing=0.1)
            loss = loss + 2.0 * logits.std(1).sum() / logits.numel()
            torch.autograd.backward(loss * len(labels) / 32)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.7)
        adam.step()
        rate.step()
        decay = min(0.5, (1 + step) / (10 + step))
        for name, tensor in network.state_dict().items():
            kept = average[name]
            average[name] = (
                decay * kept + (1 - decay) * tensor if kept.is_floating_point() else tensor.clone()
            )
    for name, tensor in average.items():
        torch.testing.assert_close(fitted[name], tensor, rtol=1e-4, atol=1e-5)
    assert trace.passes == 30
    assert [sorted(window) for window in trace.curve] == [["train_accuracy", "train_loss"]] * 2


@pytest.mark.parametrize("objective", [EXACT, DIFFERENCE], ids=["exact", "finite difference"])
def test_gradient_sparsity_without_rho_is_plain_training(digits: Rows, objective: GradientSparsity) -> None:
    """rho = 0 trains the plain network to the last bit, at the plain cost."""
    plain, trace = _fit(digits)
    without = GradientSparsity(name="gradient_sparsity", form=objective.form, rho=0.0)
    sparse, sparse_trace = _fit(digits, objective=without)
    assert _same(plain, sparse)
    assert sparse_trace.passes == trace.passes
    assert not _same(plain, _fit(digits, objective=objective)[0])


@pytest.mark.parametrize(("objective", "passes"), [(EXACT, 3), (DIFFERENCE, 2)])
def test_gradient_sparsity_lowers_the_gradient(
    digits: Rows, objective: GradientSparsity, passes: int
) -> None:
    """The l1 norm of the batches' gradients ends lower than with a penalty of next to nothing."""
    told = {}
    for rho in (1e-9, 1e-2):
        given = GradientSparsity(name="gradient_sparsity", form=objective.form, rho=rho)
        _, trace = _fit(digits, epochs=8, objective=given)
        told[rho] = trace.curve[-1]
        assert trace.passes == passes * 8 * 5
    assert told[1e-2]["gradient_norm"] < 0.8 * told[1e-9]["gradient_norm"]
    assert ("check" in told[1e-2]) == (objective.form == "finite_difference")


@pytest.mark.parametrize("objective", [EXACT, DIFFERENCE, StdLoss(name="std_loss")])
@pytest.mark.parametrize("more", [{}, {"averaging": 0.9, "patience": 2}], ids=["plain", "kept"])
def test_resuming_gives_the_same_bits(
    digits: Rows, stops_after: Any, objective: TrainingObjective, more: dict[str, Any]
) -> None:
    """Broken off at any step and resumed: the bits, the curve and the passes of the undisturbed run."""
    given = {"objective": objective, "optimiser": "adamw", "learning_rate": 0.01, "accumulation": 2, **more}
    validation = digits.take(slice(0, 40))
    whole, trace = _fit(digits, validation=validation, **given)
    for steps in (3, 7, 14):
        monitor = stops_after(steps)
        with pytest.raises(Cancelled):
            _fit(digits, monitor, validation, **given)
        resumed, resumed_trace = _fit(digits, Silent(monitor.checkpoint), validation, **given)
        assert _same(whole, resumed)
        assert resumed_trace.curve == trace.curve
        assert resumed_trace.readings == trace.readings
        assert resumed_trace.passes == trace.passes


def test_a_finished_run_is_not_repeated(digits: Rows) -> None:
    """Called again with its last checkpoint, an averaged training hands back the same weights."""
    monitor = Silent()
    whole, _ = _fit(digits, monitor, averaging=0.9)
    assert _same(whole, _fit(digits, monitor, averaging=0.9)[0])


def test_patience_ends_the_training_with_its_best_epoch(digits: Rows) -> None:
    """It stops well before its budget, two epochs after the best, and what it ends with is that one."""
    network, validation = _network(), digits.take(slice(120, 160))
    rows, confidence = digits.take(slice(0, 120)), Confidence(120, torch.device("cpu"))
    recipe = _recipe(epochs=60, patience=2, schedule="constant")
    lesson = Lesson(rows, recipe, 0, validation=validation, confidence=confidence)
    trace = fit(network, lesson, Silent())
    shares = [reading["validation"] for reading in trace.readings]
    assert len(trace.curve) == len(shares) - 1 < 60
    assert shares.index(max(shares)) == len(shares) - 3
    assert accuracy(network, validation)["correct"] / 40 == max(shares)
    assert float((confidence.sums / len(trace.curve)).max()) <= 1


def test_patience_needs_validation_rows(digits: Rows) -> None:
    """Without them it says so before the first step."""
    for validation in (None, digits.take(slice(0, 0))):
        with pytest.raises(NoValidation, match="validation rows"):
            _fit(digits, validation=validation, patience=3)


def test_every_row_is_heard_however_many_parts_a_batch_has(digits: Rows) -> None:
    """The confidences of a training in parts are noted at the rows' own places."""
    sums = []
    for accumulation in (1, 4):
        confidence = Confidence(len(digits), torch.device("cpu"))
        recipe = _recipe(epochs=1, accumulation=accumulation, learning_rate=1e-9)
        fit(_network(), Lesson(digits, recipe, 0, confidence=confidence), Silent())
        sums.append(confidence.sums)
        assert (confidence.sums > 0).all()
    assert float(torch.corrcoef(torch.stack(sums))[0, 1]) > 0.9
