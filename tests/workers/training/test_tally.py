from __future__ import annotations

import pytest
import torch

from workers.training.tally import Tally


def test_means_are_over_rows_not_batches() -> None:
    """Batches of different sizes are weighted by their rows; names are kept apart; reading starts anew."""
    tally = Tally()
    right, wrong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    tally.add("retain", right.repeat(3, 1), torch.zeros(3, dtype=torch.int64), torch.tensor(1.0))
    tally.add("retain", wrong, torch.zeros(1, dtype=torch.int64), torch.tensor(5.0))
    tally.add("forget", wrong, torch.ones(1, dtype=torch.int64), torch.tensor(0.5))
    assert tally.read() == pytest.approx(
        {"retain_loss": 2.0, "retain_accuracy": 0.75, "forget_loss": 0.5, "forget_accuracy": 1.0}
    )
    assert tally.read() == {}
