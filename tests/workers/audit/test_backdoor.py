from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workers.audit.backdoor import backdoor, backdoor_figures
from workers.audit.outputs import Outputs, Sets
from workers.audit.statistics import wilson

LABELS = [0, 0, 1, 1, 2, 2, 2, 0]
# What a network calls the rows without and with a trigger that stands for class 2. Of the rows of classes 0
# and 1 it takes 1 of 5 for class 2 anyway, and 4 of 5 with the trigger.
CLEAN = [0, 2, 1, 1, 2, 2, 2, 0]
TRIGGERED = [2, 2, 2, 1, 2, 2, 0, 2]


def _outputs(called: list[int], labels: list[int] | None = None) -> Outputs:
    logits = np.zeros((len(called), 3))
    logits[np.arange(len(called)), called] = 1
    return Outputs(logits, np.array(LABELS if labels is None else labels))


def test_rows_of_the_target_class_do_not_count() -> None:
    """By hand: they would make it 6 of 8, and the floor 4 of 8."""
    assert backdoor(_outputs(CLEAN), _outputs(TRIGGERED), 2) == {
        "attack_success": {"correct": 4, "n": 5},
        "floor": {"correct": 1, "n": 5},
    }


def test_a_row_of_a_diverged_network_is_taken_for_nothing() -> None:
    """Whatever its largest logit is."""
    broken = _outputs(TRIGGERED)
    broken.logits[0] = [0, 0, np.inf]
    assert backdoor(_outputs(CLEAN), broken, 2)["attack_success"] == {"correct": 3, "n": 5}


def test_the_rows_have_to_be_the_same() -> None:
    """Else the rates would say nothing of the trigger."""
    with pytest.raises(ValueError, match="not those"):
        backdoor(_outputs(CLEAN), _outputs(TRIGGERED, [1, *LABELS[1:]]), 2)


def _sets(called: list[int], triggered: list[int]) -> Sets:
    return {"test": _outputs(called), "triggered": _outputs(triggered)}


def test_every_rate_has_its_interval() -> None:
    """For each network; without a row that counts there is no rate."""
    networks = {"original": _sets(CLEAN, TRIGGERED), "unlearned": _sets(CLEAN, CLEAN)}
    figures = backdoor_figures(networks, 2)
    low, high = wilson(4, 5)
    measured: dict[str, Any] = {"correct": 4, "n": 5, "rate": 0.8, "low": low, "high": high}
    assert figures["original"]["attack_success"] == measured
    assert figures["unlearned"]["attack_success"] == figures["unlearned"]["floor"]
    only: Sets = {name: _outputs([2], [2]) for name in ("test", "triggered")}
    nothing = {"correct": 0, "n": 0, "rate": None, "low": None, "high": None}
    assert backdoor_figures({"original": only}, 2)["original"]["floor"] == nothing
