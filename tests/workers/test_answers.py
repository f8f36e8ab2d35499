"""Answers are computed once, survive the store to the last bit, and see noise and rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from app.jobs.params import BuiltIn
from models_store.blobs import BlobStore
from workers.answers import Answers, all_answers, key_of, packed, unpacked
from workers.audit.outputs import SetName, Sets, variant
from workers.audit.quantisation import quantised
from workers.data.batches import Rows, RowSource
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.evaluate import evaluate

SIZES: dict[SetName, int] = {"retain": 30, "forget": 7, "holdout": 9, "test": 11}


@pytest.fixture
def network() -> Network:
    return build(BuiltIn(name="small_cnn"), 3, (8, 8, 1), torch.Generator().manual_seed(1))


@pytest.fixture
def rows() -> dict[SetName, RowSource]:
    rng = np.random.default_rng(2)
    return {
        name: Rows.of(rng.integers(0, 256, (n, 8, 8, 1), dtype=np.uint8), rng.integers(0, 3, n))
        for name, n in SIZES.items()
    }


@pytest.fixture
def found(network: Network, rows: dict[SetName, RowSource]) -> Sets:
    return all_answers(network, rows, seed=5)


def test_every_set_and_every_condition(network: Network, rows: dict[SetName, RowSource], found: Sets) -> None:
    """Logits as `evaluate` has them, with features; F and H under noise and rounding besides."""
    for name, n in SIZES.items():
        features = found[name].features
        assert features is not None
        assert len(features) == n
        np.testing.assert_array_equal(found[name].logits, evaluate(network, rows[name]).double().numpy())
    noisy = variant(found, "noisy")
    assert noisy is not None
    assert not np.array_equal(noisy["forget"].logits, found["forget"].logits)
    rounded = evaluate(quantised(network, 4), rows["holdout"]).double().numpy()
    np.testing.assert_array_equal(found["holdout_int4"].logits, rounded)


def test_every_network_sees_the_same_noise(
    network: Network, rows: dict[SetName, RowSource], found: Sets
) -> None:
    """One seed, one set of images; another seed, others; F and H do not share theirs."""
    again = all_answers(network, rows, seed=5)
    other = all_answers(network, rows, seed=6)
    np.testing.assert_array_equal(again["forget_noisy"].logits, found["forget_noisy"].logits)
    assert not np.array_equal(other["forget_noisy"].logits, found["forget_noisy"].logits)
    same_images = {**rows, "holdout": rows["forget"]}
    twice = all_answers(network, same_images, seed=5)
    assert not np.array_equal(twice["forget_noisy"].logits, twice["holdout_noisy"].logits)


def test_the_store_keeps_every_bit(found: Sets) -> None:
    """Packed and unpacked, the answers are those that were computed."""
    back = unpacked(packed(found))
    assert set(back) == set(found)
    for name, outputs in found.items():
        np.testing.assert_array_equal(back[name].logits, outputs.logits)
        np.testing.assert_array_equal(back[name].labels, outputs.labels)
        assert (back[name].features is None) == (outputs.features is None)
    assert packed(back) == packed(found)


def test_what_is_kept_is_not_computed_again(found: Sets, tmp_path: Path) -> None:
    """Within a process from memory, in the next from the store, and anew under another key."""
    store = BlobStore(str(tmp_path))
    noted: dict[str, str] = {}
    computed: list[str] = []

    def compute() -> Sets:
        computed.append("once")
        return found

    key = key_of("weights", "rows")
    first = Answers(store, note=noted.__setitem__)
    assert first.of(key, compute) is first.of(key, compute) is found
    assert computed == ["once"]
    assert set(noted) == {key}
    later = Answers(store, kept=noted).of(key, compute)
    np.testing.assert_array_equal(later["test"].logits, found["test"].logits)
    assert computed == ["once"]
    Answers(store, kept=noted).of(key_of("other weights", "rows"), compute)
    assert computed == ["once"] * 2
