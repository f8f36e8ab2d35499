"""What a computation's peak of memory counts: its own, from the start on, and nobody else's.

Measured in processes of their own: in one that has freed much, new tensors may lie where old ones were.
"""

from __future__ import annotations

import subprocess
import sys

import torch

_LARGE, _SMALL = 400 << 20, 100 << 20  # bytes
_SLACK = 20 << 20
_CHILD = """
import torch
from workers.training.memory import begin_peak, peak_bytes
cpu = torch.device("cpu")
earlier = torch.ones({earlier}, dtype=torch.uint8)
del earlier
begin_peak(cpu)
before = peak_bytes(cpu)
taken = torch.ones({taken}, dtype=torch.uint8)
del taken
print(peak_bytes(cpu) - before)
"""


def _measured(*, earlier: int, taken: int) -> int:
    """The peak that a process reports that took so much before it began, and so much afterwards."""
    script = _CHILD.format(earlier=earlier, taken=taken)
    done = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout)


def test_the_peak_counts_from_its_beginning() -> None:
    """What was held and freed before does not hide what is taken afterwards; what is freed stays counted."""
    assert abs(_measured(earlier=_LARGE, taken=_SMALL) - _SMALL) < _SLACK


def test_the_peak_is_not_that_of_the_process_that_started_it() -> None:
    """A process that a larger one starts counts from what itself holds."""
    held = torch.ones(4 * _LARGE, dtype=torch.uint8)
    assert abs(_measured(earlier=1, taken=_SMALL) - _SMALL) < _SLACK
    assert len(held)
