from __future__ import annotations

import torch

from workers.data.seeds import derived_seed, generator


def test_streams_differ_by_every_part_of_their_name() -> None:
    """Seeds, names and numbers all matter, and so does where one part ends."""
    seeds = {
        derived_seed(0, "a", 1),
        derived_seed(1, "a", 1),
        derived_seed(0, "b", 1),
        derived_seed(0, "a", 2),
        derived_seed(0, "a1"),
        derived_seed(0),
    }
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_named_stream_can_be_drawn_again() -> None:
    """The same name gives the same numbers."""
    first = torch.rand(4, generator=generator(7, "x"))
    assert torch.equal(first, torch.rand(4, generator=generator(7, "x")))
