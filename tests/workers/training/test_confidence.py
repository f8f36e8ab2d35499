from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import mannwhitneyu
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from app.jobs.params import BuiltIn, Objective, Plain, Sam, TrainingRecipe
from models_store.checkpoints import unpack
from models_store.rows import RowSet
from workers.data.batches import Batches, Rows
from workers.data.seeds import derived_seed
from workers.monitor import Cancelled, Monitor, Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.confidence import Confidence, scores
from workers.training.train import Lesson, fit


def _network() -> Network:
    return build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))


def _sums(rows: Rows, monitor: Monitor | None = None, **recipe: Any) -> Tensor:
    confidence = Confidence(len(rows), torch.device("cpu"))
    given = TrainingRecipe(**{"epochs": 3, "batch_size": 32, "precision": "fp32", **recipe})
    fit(_network(), Lesson(rows, given, 0, confidence=confidence), monitor or Silent())
    return confidence.sums


def test_it_agrees_with_a_plain_loop(digits: Rows) -> None:
    """Two epochs with augmentation against PyTorch's optimiser, looking each row's probability up by hand."""
    found = _sums(digits, epochs=2, warmup_share=0.0, schedule="constant", augmentation="flip_crop")
    network = _network().train()
    network.normalise_by([digits.images])
    batches = Batches(digits, batch_size=32, augmentation="flip_crop", seed=derived_seed(0, "train"))
    sgd = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    expected = [0.0] * len(digits)
    for step in range(10):
        batch = batches.at(step)
        logits = network(batch.images)
        for row, place in enumerate(batches.places(step).tolist()):
            odds = logits[row].detach().double().exp()
            expected[place] += float(odds[batch.labels[row]] / odds.sum())
        sgd.zero_grad()
        torch.autograd.backward(functional.cross_entropy(logits, batch.labels))
        sgd.step()
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("objective", [Plain(), Sam(name="sam")])
def test_listening_changes_no_bit_of_the_network(digits: Rows, objective: Objective) -> None:
    """Weights, curve and passes are those of a training that records nothing."""
    recipe = TrainingRecipe(epochs=2, batch_size=32, precision="fp32", objective=objective)
    silent, heard = _network(), _network()
    trace = fit(silent, Lesson(digits, recipe, 0), Silent())
    confidence = Confidence(len(digits), torch.device("cpu"))
    heard_trace = fit(heard, Lesson(digits, recipe, 0, confidence=confidence), Silent())
    assert all(torch.equal(t, heard.state_dict()[name]) for name, t in silent.state_dict().items())
    assert (heard_trace.curve, heard_trace.passes) == (trace.curve, trace.passes)


def test_a_shifted_pass_is_not_heard(digits: Rows) -> None:
    """Of the two passes of SAM only that at the network's own weights counts: without a step, as plainly."""
    assert torch.equal(_sums(digits), _sums(digits, objective=Sam(name="sam", rho=0)))


@pytest.mark.parametrize("killed", [[2], [7, 4], [14]])
def test_resuming_gives_the_same_bits(digits: Rows, stops_after: Any, killed: list[int]) -> None:
    """Broken off once or twice, anywhere: no pass is lost and none is counted twice."""
    checkpoint = None
    for steps in killed:
        monitor = stops_after(steps)
        monitor.checkpoint = checkpoint
        with pytest.raises(Cancelled):
            _sums(digits, monitor)
        checkpoint = monitor.checkpoint
    assert torch.equal(_sums(digits, Silent(checkpoint)), _sums(digits))


def test_nothing_is_read_back_from_the_device() -> None:
    """Tensors without values, which cannot be brought to the host, can be added."""
    with torch.device("meta"):
        confidence = Confidence(100, torch.device("meta"))
        confidence.add(torch.empty(8, 10), torch.arange(8), torch.zeros(8, dtype=torch.int64))
    assert confidence.sums.shape == (100,)


def test_scores_are_turned_round_means() -> None:
    """Two passes over three rows, worked by hand, stored and read back."""
    confidence = Confidence(3, torch.device("cpu"))
    even, sure = torch.zeros(1, 2), torch.tensor([[np.log(3.0), 0.0]])
    zero = torch.tensor([0])
    for logits, place, label in [(even, 2, 0), (sure, 2, 0), (sure, 0, 0), (sure, 0, 1)]:
        confidence.add(logits, zero + place, zero + label)
    rows = RowSet.of([4, 7, 9])
    content = confidence.packed(rows, epochs=2)
    assert scores(content, rows) == pytest.approx([0.5, 1.0, 1 - (0.5 + 0.75) / 2])
    tensors, facts = unpack(content)
    assert tensors["confidence"].dtype == torch.float32
    assert facts == {"rows": rows.digest, "epochs": 2}


def test_scores_of_other_rows_are_refused() -> None:
    """Places mean nothing without the rows they count."""
    content = Confidence(3, torch.device("cpu")).packed(RowSet.of([4, 7, 9]), epochs=1)
    with pytest.raises(ValueError, match="other rows"):
        scores(content, RowSet.of([4, 7, 8]))


def test_wrong_labels_are_learned_late(digits: Rows) -> None:
    """Sixteen of 160 digits with wrong labels get the least confidence, though in the end they are fitted."""
    _, labels = load_digits(return_X_y=True)
    draw = np.random.default_rng(0)
    wrong = np.isin(np.arange(160), draw.choice(160, 16, replace=False))
    given = torch.from_numpy((labels[:160].astype(np.int64) + wrong * draw.integers(1, 10, 160)) % 10)
    confidence, rows = Confidence(160, torch.device("cpu")), RowSet.below(160)
    recipe = TrainingRecipe(epochs=30, batch_size=32, precision="fp32")
    network = build(BuiltIn(width=0.5), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    trace = fit(network, Lesson(Rows(digits.images, given), recipe, 0, confidence=confidence), Silent())
    found = scores(confidence.packed(rows, recipe.epochs), rows)
    assert trace.curve[-1]["train_accuracy"] > 0.95
    assert mannwhitneyu(found[wrong], found[~wrong]).statistic / (16 * 144) > 0.95
