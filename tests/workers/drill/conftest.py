"""A recipe that is trained in a second and still learns by heart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workers.drill import recipes
from workers.drill.stage import Canaries, Recipe, Stage


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    digits = recipes.digits()
    return replace(digits, train=digits.train.take(slice(0, 600)))


@pytest.fixture(scope="session")
def stage(recipe: Recipe) -> Stage:
    """Twenty mislabelled rows to forget; its networks are trained once for all tests."""
    return Stage(recipe, Canaries.drawn(recipe, "canaries", 3), "canaries", 20, 3)
