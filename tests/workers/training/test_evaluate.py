from __future__ import annotations

import torch

from app.jobs.params import BuiltIn
from workers.data.batches import Rows
from workers.nets.factory import build
from workers.training.evaluate import accuracy, evaluate


def test_evaluation_neither_learns_nor_depends_on_batches(digits: Rows) -> None:
    """Each row's logits are those of the row alone, in float32, and the statistics do not move."""
    network = build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    many = Rows(digits.images.repeat(7, 1, 1, 1), digits.labels.repeat(7))  # more than one batch
    logits = evaluate(network.train(), many)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits[-1], evaluate(network, digits.take(slice(159, 160)))[0])
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_accuracy_counts_hits(digits: Rows) -> None:
    """Right and all rows are counted, as scikit-learn would; without rows there are none."""
    network = build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    predicted = evaluate(network, digits).argmax(1)
    answered = Rows(digits.images, torch.where(torch.arange(160) < 100, predicted, (predicted + 1) % 10))
    assert accuracy(network, answered) == {"correct": 100, "n": 160}
    assert accuracy(network, digits.take(slice(0, 0))) == {"correct": 0, "n": 0}


def test_accuracy_of_some_rows(digits: Rows) -> None:
    """A sample of the rows is judged by their places."""
    network = build(BuiltIn(width=0.25), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    predicted = evaluate(network, digits).argmax(1)
    answered = Rows(digits.images, torch.where(torch.arange(160) % 2 == 0, predicted, (predicted + 1) % 10))
    assert accuracy(network, answered, torch.arange(0, 160, 4)) == {"correct": 40, "n": 40}
    assert accuracy(network, answered, torch.arange(3)) == {"correct": 2, "n": 3}
