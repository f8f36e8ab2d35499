"""What a safetensors file says it holds, checked against the file's size; no tensor is read.

Format: 8 bytes, little-endian, the header's length; the header, a JSON object of tensor names with dtype,
shape and the bytes from and to which each lies; then the bytes of all tensors, without gaps or overlaps.
(https://github.com/huggingface/safetensors, "Format".)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LARGEST_HEADER = 32 * 1024 * 1024  # bytes; that of a thousand tensors takes about 100 kB
_MOST_DIMENSIONS = 16
_TYPES = {
    64: "F64 I64 U64",
    32: "F32 I32 U32",
    16: "F16 BF16 I16 U16",
    8: "F8_E5M2 F8_E4M3 I8 U8 BOOL",
}
_BITS = {name: bits for bits, names in _TYPES.items() for name in names.split()}
_OTHER_FORMATS = {
    b"\x80": "a pickle, which would run code when it is loaded",
    b"PK\x03\x04": "a zip archive, as torch.save writes, which would run code when it is loaded",
    b"\x89HDF": "an HDF5 file",
}


class NotSafetensors(Exception):
    """The file is no safetensors file, or not all of one; the message says why."""


@dataclass(frozen=True)
class Entry:
    """One tensor: its type, as the format names it, and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Header:
    """The tensors of a file by name, and the text that stands beside them."""

    tensors: Mapping[str, Entry]
    metadata: Mapping[str, str]


def read_header(path: Path) -> Header:
    """The header of the file at `path`. Raises NotSafetensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= _LARGEST_HEADER:
            raise NotSafetensors(_reason(start))
        content = file.read(length)
    if len(content) < length:
        raise NotSafetensors("the file ends within its header: it was cut off")
    described = _object(content)
    metadata = _metadata(described.pop("__metadata__", {}))
    spans: list[tuple[int, int]] = []
    tensors = {name: _entry(value, spans) for name, value in described.items()}
    _check_spans(spans, size - 8 - length)
    return Header(tensors, metadata)


def _reason(start: bytes) -> str:
    """Why a file that begins so is refused."""
    for magic, what in _OTHER_FORMATS.items():
        if start.startswith(magic):
            return f"this is {what}: only safetensors is taken"
    return "this is no safetensors file: it does not begin with a header's length"


def _object(content: bytes) -> dict[str, Any]:
    """The header's JSON object, in which no name comes twice."""
    try:
        found = json.loads(content, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):
        raise NotSafetensors("the header is not JSON, or names something twice") from None
    if not isinstance(found, dict):
        raise NotSafetensors("the header is not a JSON object")
    return found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _metadata(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise NotSafetensors("the header's metadata is not text by name")
    return found


def _entry(found: object, spans: list[tuple[int, int]]) -> Entry:
    """A tensor's entry; the span that it takes of the data is added to `spans`."""
    if not isinstance(found, dict) or set(found) != {"dtype", "shape", "data_offsets"}:
        raise NotSafetensors("an entry of the header is not dtype, shape and data_offsets")
    dtype, shape, offsets = found["dtype"], found["shape"], found["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise NotSafetensors("a tensor has an unknown type")
    if not _are_sizes(shape) or len(shape) > _MOST_DIMENSIONS or not _are_sizes(offsets) or len(offsets) != 2:
        raise NotSafetensors("a tensor's shape or place is not given as whole numbers")
    start, end = offsets
    if end - start != math.prod(shape) * _BITS[dtype] // 8:
        raise NotSafetensors("a tensor's place has not the size of its shape and type")
    spans.append((start, end))
    return Entry(dtype, tuple(shape))


def _are_sizes(found: object) -> bool:
    return isinstance(found, list) and all(type(each) is int and 0 <= each < 2**63 for each in found)


def _check_spans(spans: list[tuple[int, int]], data_bytes: int) -> None:
    """The tensors follow each other without gaps, and fill the file."""
    reached = 0
    for start, end in sorted(spans):
        if start != reached:
            raise NotSafetensors("tensors overlap, or there are gaps between them")
        reached = end
    if reached > data_bytes:
        raise NotSafetensors(f"the file was cut off: {reached - data_bytes} bytes of its tensors are missing")
    if reached < data_bytes:
        raise NotSafetensors(f"{data_bytes - reached} bytes follow the tensors")
