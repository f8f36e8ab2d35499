"""One seed a job; every use of randomness in it draws from a stream of its own."""

from __future__ import annotations

import hashlib

import torch


def derived_seed(seed: int, *path: str | int) -> int:
    """A seed in [0, 2^63) for the named use; streams of different names are unrelated."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *path: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for the named use."""
    return torch.Generator(device=device).manual_seed(derived_seed(seed, *path))
