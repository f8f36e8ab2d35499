"""How often a backdoor opens: what a network makes of test rows with and without the trigger.

Rows of the target class are left out: they are the target without any backdoor, and a rate that counts them
is high for every network that is any good. What is left of the rate without a trigger is the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.audit.outputs import BoolArray, Outputs, Sets
from workers.audit.statistics import rate


def backdoor(test: Outputs, triggered: Outputs, target: int) -> dict[str, dict[str, int]]:
    """Of the test rows that are not of the target class: how many are taken for it.

    Args:
        test: the rows as they are.
        triggered: the same rows with the trigger on them.
        target: the class that the trigger stands for.

    Returns:
        {"attack_success": with the trigger, "floor": without}, each {"correct", "n"}.

    Raises:
        ValueError: these are not the same rows.
    """
    if test.labels.tolist() != triggered.labels.tolist():
        raise ValueError("the rows with the trigger are not those without it")
    others = test.labels != target
    return {
        "attack_success": _count(triggered.called(target)[others]),
        "floor": _count(test.called(target)[others]),
    }


def backdoor_figures(networks: Mapping[str, Sets], target: int) -> dict[str, Any]:
    """The same of each network, {NETWORK: {"attack_success" | "floor"}}, each with its rate and interval."""
    counts = {name: backdoor(sets["test"], sets["triggered"], target) for name, sets in networks.items()}
    return {
        name: {measure: {**of, **rate(of["correct"], of["n"])} for measure, of in measured.items()}
        for name, measured in counts.items()
    }


def _count(hits: BoolArray) -> dict[str, int]:
    return {"correct": int(hits.sum()), "n": len(hits)}
