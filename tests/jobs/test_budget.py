"""What an audit's budget buys."""

from __future__ import annotations

import pytest

from app.jobs.budget import Bought, bought


@pytest.mark.parametrize(
    ("budget", "references", "shadows"),
    [(0, 0, 0), (1, 1, 0), (3, 3, 0), (4, 4, 0), (5, 4, 2), (8, 4, 8), (64, 4, 120)],
)
def test_references_come_first(budget: int, references: int, shadows: int) -> None:
    """Up to four of them; every further unit is two halves of a training."""
    assert bought(budget) == Bought(references, shadows)


@pytest.mark.parametrize("budget", range(65))
def test_it_is_spent_to_the_last_unit(budget: int) -> None:
    """A reference costs one training, a shadow half of one."""
    found = bought(budget)
    assert found.references + found.shadows / 2 == budget
