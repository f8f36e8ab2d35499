"""Tensors in and out of bytes, by safetensors alone: loading never runs code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch


def pack(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any] | None = None) -> bytes:
    """Serialise named tensors, and JSON facts beside them, to the same bytes for the same content."""
    dense = {name: t.detach().cpu().contiguous() for name, t in sorted(tensors.items())}
    metadata = {"facts": json.dumps(facts or {}, sort_keys=True)}
    return safetensors.torch.save(dense, metadata)


def unpack(content: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read what `pack` wrote (or any safetensors file, whose facts are then empty)."""
    tensors = safetensors.torch.load(content)
    header_size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + header_size])
    facts = json.loads(header.get("__metadata__", {}).get("facts", "{}"))
    return tensors, facts
