"""Reading rows of numbers without what computes."""

from __future__ import annotations

import math

import pytest
import torch

from models_store.checkpoints import pack
from models_store.vectors import read_vectors


def test_it_reads_what_the_workers_write() -> None:
    """Both types, bit for bit, special values included, and the facts beside them."""
    single = torch.randn(7, generator=torch.Generator().manual_seed(0))
    double = torch.tensor([math.pi, -0.0, math.inf, math.nan], dtype=torch.float64)
    found = read_vectors(pack({"single": single, "double": double}, {"rows": "ab", "epochs": 3}))
    assert found.facts == {"rows": "ab", "epochs": 3}
    assert list(found.values["single"]) == single.tolist()
    assert list(found.values["double"])[:3] == double.tolist()[:3]
    assert math.isnan(found.values["double"][3])


@pytest.mark.parametrize("tensor", [torch.zeros(2, 2), torch.zeros(3, dtype=torch.int64)])
def test_other_tensors_are_refused(tensor: torch.Tensor) -> None:
    """They are no row of numbers."""
    with pytest.raises(ValueError, match="no row of numbers"):
        read_vectors(pack({"scores": tensor}))


@pytest.mark.parametrize("left", [-1, -4, 30, 3, 0])
def test_a_file_that_was_cut_off_is_refused(left: int) -> None:
    """Wherever: within the numbers, the header or its length."""
    with pytest.raises(ValueError, match="no whole safetensors file"):
        read_vectors(pack({"scores": torch.zeros(5)})[:left])
