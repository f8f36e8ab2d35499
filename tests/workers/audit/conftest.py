"""Made-up networks whose answers are known by construction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workers.audit.outputs import IntArray, Outputs, SetName, Sets

Rows = dict[SetName, IntArray]
MakeNetwork = Callable[..., Sets]
MakeOutputs = Callable[..., Outputs]


@pytest.fixture
def rows() -> Rows:
    """Labels of 600 retained, 80 forgotten, 160 held-out (mixed unevenly) and 200 test rows of 5 classes."""
    rng = np.random.default_rng(11)
    sizes: dict[SetName, int] = {"retain": 600, "forget": 80, "test": 200}
    even = {name: rng.integers(0, 5, size) for name, size in sizes.items()}
    return {**even, "holdout": rng.choice(5, 160, p=[0.4, 0.3, 0.1, 0.1, 0.1])}


@pytest.fixture
def make_network(rows: Rows) -> MakeNetwork:
    """A network that is `sure` of the right label by so many logits, the same on every set not named."""

    def make(seed: int, *, sure: float = 1.0, **by_set: float) -> Sets:
        rng = np.random.default_rng(seed)
        sets: dict[SetName, Outputs] = {}
        for name, labels in rows.items():
            logits = rng.normal(size=(len(labels), 5))
            logits[np.arange(len(labels)), labels] += by_set.get(name, sure)
            sets[name] = Outputs(logits, labels)
        return sets

    return make


@pytest.fixture
def vary() -> Callable[[Sets], Sets]:
    """The same network, measured under every other condition too, where it answers as it always does."""

    def also(sets: Sets) -> Sets:
        pairs = [(f"forget_{each}", f"holdout_{each}") for each in ("noisy", "int8", "int4")]
        more = {name: sets[name.split("_")[0]] for pair in pairs for name in pair}  # type: ignore[index]
        return {**sets, **more}  # type: ignore[dict-item]

    return also


@pytest.fixture
def make_outputs() -> MakeOutputs:
    """Random outputs on `n` rows of `classes` classes, `sure` of the right label by so many logits."""

    def make(seed: int, *, n: int = 200, sure: float = 0.0, classes: int = 6) -> Outputs:
        rng = np.random.default_rng(seed)
        logits, labels = rng.normal(scale=2.0, size=(n, classes)), rng.integers(0, classes, n)
        logits[np.arange(n), labels] += sure
        return Outputs(logits, labels)

    return make
