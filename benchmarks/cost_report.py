"""Tables of what training costs, from the last committed row of benchmarks/training_cost.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.records import Results
from benchmarks.tables import table

_OBJECTIVES = ("plain", "sam", "asam", "finite_difference", "exact")
_LOOPS: Mapping[str, str] = {
    "reference_style": "in the style of torchvision's references, float32",
    "ours_fp32": "ours, float32",
    "ours": "ours, in the precision that it chooses",
}


def _figures() -> Mapping[str, Any] | None:
    found: list[Mapping[str, Any]] = [row["figures"] for row in Results("training_cost")]
    return found[-1] if found else None


def steps() -> str:
    """Each objective's step, and the memory of a training, by those of the plain one."""
    figures = _figures() or {"steps": {}}
    lines = [
        [name, f"{1000 * of['seconds']:.0f}", f"{of['ratio']:.2f}", _memory(figures["memory"][name])]
        for name in _OBJECTIVES
        if (of := figures["steps"].get(name)) is not None
    ]
    return table("objective | ms a step | time | memory", lines)


def _memory(of: Mapping[str, float]) -> str:
    return f"{of['ratio']:.2f} ({of['bytes'] / 2**20:.0f} MB)"


def loops() -> str:
    """Images a second of each loop."""
    found = (_figures() or {"images_per_second": {}})["images_per_second"]
    lines = [
        [words, f"{found[name]:.0f}", f"{found[name] / found['reference_style']:.2f}"]
        for name, words in _LOOPS.items()
        if name in found
    ]
    return table("loop | images a second | of the first", lines)
