"""Headers of weights files: what safetensors itself writes is read, anything else has a reason."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from models_store.safetensors_header import Entry, NotSafetensors, read_header

_TENSORS: dict[str, np.ndarray[Any, Any]] = {
    "weight": np.ones((2, 3), np.float32),
    "bias": np.zeros(3, np.float16),
    "step": np.array([4]),
}
_FILE = save(_TENSORS, {"facts": "{}"})


def _read(tmp_path: Path, content: bytes) -> Any:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    return read_header(path)


def _refusal(tmp_path: Path, content: bytes) -> str:
    with pytest.raises(NotSafetensors) as found:
        _read(tmp_path, content)
    return str(found.value)


def _file(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return len(text).to_bytes(8, "little") + text + data


def _entry(dtype: str = "F32", shape: list[Any] | None = None, offsets: list[Any] | None = None) -> Any:
    return {"dtype": dtype, "shape": [1] if shape is None else shape, "data_offsets": offsets or [0, 4]}


def test_what_safetensors_writes_is_read(tmp_path: Path) -> None:
    """Names, types, shapes and metadata."""
    header = _read(tmp_path, _FILE)
    assert header.metadata == {"facts": "{}"}
    assert header.tensors == {
        "weight": Entry("F32", (2, 3)),
        "bias": Entry("F16", (3,)),
        "step": Entry("I64", (1,)),
    }


def test_an_empty_file_of_tensors_is_one(tmp_path: Path) -> None:
    """Whether it fits a network is another question."""
    assert _read(tmp_path, save({})).tensors == {}


def test_a_pickle_is_called_one(tmp_path: Path) -> None:
    """Both of Python and of torch.save, whatever the file's name is."""
    assert "a pickle" in _refusal(tmp_path, pickle.dumps({"weight": 1}))
    torch.save({"weight": torch.ones(2)}, tmp_path / "saved")
    assert "zip archive" in _refusal(tmp_path, (tmp_path / "saved").read_bytes())


@pytest.mark.parametrize("kept", [0, 7, 20, len(_FILE) - 1])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    """Wherever it ends."""
    _refusal(tmp_path, _FILE[:kept])


def test_bytes_beyond_the_tensors_are_refused(tmp_path: Path) -> None:
    """Nothing may hide behind them."""
    assert "follow the tensors" in _refusal(tmp_path, _FILE + b"x")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (_file([1]), "not a JSON object"),
        (_file(b"{not json"), "not JSON"),
        (_file(b'{"a": 1, "a": 2}'), "twice"),
        (_file(b"[" * 100_000), "not JSON"),
        (_file({"__metadata__": {"a": 1}}), "metadata"),
        (_file({"a": 3}), "entry"),
        (_file({"a": {**_entry(), "more": 1}}, bytes(4)), "entry"),
        (_file({"a": _entry("F31")}, bytes(4)), "unknown type"),
        (_file({"a": _entry(shape=[1.5])}, bytes(4)), "whole numbers"),
        (_file({"a": _entry(shape=[True])}, bytes(4)), "whole numbers"),
        (_file({"a": _entry(shape=[-1])}, bytes(4)), "whole numbers"),
        (_file({"a": _entry(shape=[1] * 17)}, bytes(4)), "whole numbers"),
        (_file({"a": _entry(shape=[2])}, bytes(4)), "size of its shape"),
        (_file({"a": _entry(shape=[2**62, 2**62])}, bytes(4)), "size of its shape"),
        (_file({"a": _entry(offsets=[4, 0])}, bytes(4)), "size of its shape"),
        (_file({"a": _entry(), "b": _entry()}, bytes(8)), "overlap"),
        (_file({"a": _entry(), "b": _entry(offsets=[8, 12])}, bytes(12)), "gaps"),
        ((2**40).to_bytes(8, "little") + b"{}", "header's length"),
    ],
)
def test_a_wrong_header_has_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    """Nothing is taken on the header's word."""
    assert reason in _refusal(tmp_path, content)


@given(place=st.integers(0, len(_FILE) - 1), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    """No damage makes it raise anything else."""
    path = tmp_path_factory.mktemp("damaged") / "weights"
    path.write_bytes(_FILE[:place] + bytes([value]) + _FILE[place + 1 :])
    try:
        read_header(path)
    except NotSafetensors:
        return
