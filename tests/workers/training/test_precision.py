from __future__ import annotations

import pytest
import torch

from app.jobs.params import Precision
from workers.training.precision import autocast_dtype


@pytest.mark.parametrize(
    ("precision", "capabilities", "expected"),
    [
        ("fp32", {"avx512_bf16": True}, None),
        ("bf16", {}, torch.bfloat16),
        ("auto", {"avx512_bf16": True}, torch.bfloat16),
        ("auto", {"amx_bf16": True}, torch.bfloat16),
        ("auto", {"avx512_bf16": False, "avx512_f": True}, None),
        ("auto", {}, None),
    ],
)
def test_auto_asks_the_processor(
    monkeypatch: pytest.MonkeyPatch,
    precision: Precision,
    capabilities: dict[str, bool],
    expected: torch.dtype | None,
) -> None:
    """`auto` uses bfloat16 only where there are instructions for it; the others do as they say."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert autocast_dtype(precision, torch.device("cpu")) == expected


def test_the_processor_is_asked_for_real() -> None:
    """The names of the instructions are among those that PyTorch reports, on x86."""
    capabilities = torch.cpu.get_capabilities()
    if capabilities["architecture"] != "x86_64":
        pytest.skip("the instructions are those of x86 processors")
    assert {"avx512_bf16", "amx_bf16"} <= capabilities.keys()
