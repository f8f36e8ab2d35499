"""What a computation's peak of memory counts: its own, from the start on, and nobody else's."""

from __future__ import annotations

import subprocess
import sys

import torch

from workers.training.memory import begin_peak, peak_bytes

_CPU = torch.device("cpu")
_LARGE, _SMALL = 400 << 20, 100 << 20  # bytes
_SLACK = 20 << 20
_CHILD = """
import torch
from workers.training.memory import begin_peak, peak_bytes
cpu = torch.device("cpu")
begin_peak(cpu)
before = peak_bytes(cpu)
held = torch.ones({size}, dtype=torch.uint8)
print(peak_bytes(cpu) - before)
"""


def _ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.uint8)


def test_the_peak_counts_from_its_beginning() -> None:
    """What was held and freed before does not hide what is taken afterwards; what is freed stays counted."""
    before_all = _ones(_LARGE)
    del before_all
    begin_peak(_CPU)
    before = peak_bytes(_CPU)
    taken = _ones(_SMALL)
    del taken
    assert abs(peak_bytes(_CPU) - before - _SMALL) < _SLACK


def test_the_peak_is_not_that_of_the_process_that_started_it() -> None:
    """A process that a larger one starts counts from what itself holds."""
    held = _ones(4 * _LARGE)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(size=_SMALL)], check=True, stdout=subprocess.PIPE, text=True
    )
    assert len(held)
    assert abs(int(done.stdout) - _SMALL) < _SLACK
