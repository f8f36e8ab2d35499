from __future__ import annotations

import torch

from workers.spec import Environment
from workers.training.surroundings import described, surroundings


def test_settings_hold_inside_and_come_back() -> None:
    """Threads and determinism are as the spec says while the computation lasts, and as before afterwards."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with surroundings(Environment(threads=2, device="cpu")) as device:
        assert device == torch.device("cpu")
        assert torch.get_num_threads() == 2
        assert torch.are_deterministic_algorithms_enabled()
        assert described(device)["threads"] == 2
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def test_facts_are_ready_for_json() -> None:
    """What is recorded with an outcome is text and numbers."""
    facts = described(torch.device("cpu"))
    assert facts.keys() == {"threads", "device", "device_name", "cpu_capability", "torch"}
    assert facts["torch"] == str(torch.__version__)
    assert all(value is None or type(value) in {int, str} for value in facts.values())
