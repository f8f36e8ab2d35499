"""Rows of floating-point numbers out of a safetensors file, by the standard library alone.

For whoever wants a few numbers of a blob that the workers wrote, and neither torch nor NumPy for it.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CODES = {"F32": "f", "F64": "d"}


@dataclass(frozen=True)
class Vectors:
    """One-dimensional tensors by name, and the facts that `models_store.checkpoints.pack` put beside them."""

    values: Mapping[str, array[float]]
    facts: Mapping[str, Any]


def read_vectors(content: bytes) -> Vectors:
    """The vectors in a safetensors file, float32 or float64.

    Raises:
        ValueError: The content is no such file, or holds something else as well.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8:start])
    except ValueError:
        raise ValueError("this is no whole safetensors file") from None
    facts = json.loads(header.pop("__metadata__", {}).get("facts", "{}"))
    return Vectors({name: _vector(entry, content[start:]) for name, entry in header.items()}, facts)


def _vector(entry: Mapping[str, Any], data: bytes) -> array[float]:
    if entry["dtype"] not in _CODES or len(entry["shape"]) != 1:
        raise ValueError(f"a tensor of {entry['dtype']} {entry['shape']} is no row of numbers")
    begin, end = entry["data_offsets"]
    if end > len(data):
        raise ValueError("this is no whole safetensors file")
    values: array[float] = array(_CODES[entry["dtype"]])
    values.frombytes(data[begin:end])
    if sys.byteorder == "big":
        values.byteswap()
    return values
