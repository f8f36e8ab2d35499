"""The most memory that a computation has taken."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_RESET_PEAK = "5"  # proc_pid_clear_refs(5): the peak of resident memory begins anew
_KIB = 1024


def begin_peak(device: torch.device) -> None:
    """Count from here on. Where a system cannot, the process's whole life counts."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return


def peak_bytes(device: torch.device) -> int:
    """Since `begin_peak`: of a GPU what tensors took, of a CPU the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not ru_maxrss: that begins with the peak of the process that this one was started by.
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) * _KIB if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
