from __future__ import annotations

import pytest
import safetensors.torch
import torch

from models_store.checkpoints import pack, unpack


def test_tensors_and_facts_come_back() -> None:
    """Types, shapes, bits and the facts beside them survive, whatever the memory layout was."""
    tensors = {
        "image": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
    }
    facts = {"step": 3, "curve": [{"loss": 0.1 + 0.2}]}
    back, back_facts = unpack(pack(tensors, facts))
    assert back_facts == facts
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def test_same_content_same_bytes() -> None:
    """The order in which tensors and facts were named does not matter."""
    a, b = torch.ones(2), torch.zeros(3)
    assert pack({"a": a, "b": b}, {"x": 1, "y": 2}) == pack({"b": b, "a": a}, {"y": 2, "x": 1})


def test_foreign_safetensors_have_no_facts() -> None:
    """A file that another program wrote is read, with empty facts."""
    tensors, facts = unpack(safetensors.torch.save({"w": torch.ones(1)}))
    assert torch.equal(tensors["w"], torch.ones(1))
    assert facts == {}


def test_anything_else_is_refused() -> None:
    """Bytes that are not safetensors raise instead of being interpreted."""
    with pytest.raises(safetensors.SafetensorError):
        unpack(b"\x80\x04not a checkpoint at all")
