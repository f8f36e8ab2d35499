"""The settings of the process that decide the bits of a computation, for as long as it lasts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from workers.spec import Environment


@contextmanager
def surroundings(environment: Environment) -> Iterator[torch.device]:
    """Compute deterministically, in full float32 where float32 is asked for, with so many threads.

    The settings that were there before come back afterwards, except cuBLAS's, which it reads once.
    """
    device = torch.device(environment.device)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    tf32 = torch.backends.cudnn.allow_tf32
    torch.set_num_threads(environment.threads)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield device
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.allow_tf32 = tf32


def described(device: torch.device) -> dict[str, Any]:
    """What the bits depend on besides the spec, as JSON-ready facts."""
    return {
        "threads": torch.get_num_threads(),
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": str(torch.__version__),
    }
