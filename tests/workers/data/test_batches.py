from __future__ import annotations

import numpy as np
import pytest
import torch

from workers.data.batches import Batches, Rows


@pytest.fixture
def rows() -> Rows:
    """23 distinguishable 4x4 images: row i holds label i, and pixels of its own."""
    images = np.random.default_rng(0).integers(0, 256, (23, 4, 4, 1), dtype=np.uint8)
    return Rows.of(images, np.arange(23))


def test_loaded_images_become_channels_last(rows: Rows) -> None:
    """[n, H, W, C] arrays become [n, C, H, W] tensors without a change of pixels."""
    images = np.random.default_rng(1).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    loaded = Rows.of(images, np.arange(5))
    assert loaded.images.shape == (5, 3, 4, 6)
    assert loaded.images.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(loaded.images.permute(0, 2, 3, 1).numpy(), images)


def test_each_pass_holds_every_row_once_in_a_new_order(rows: Rows) -> None:
    """A pass is a permutation, the next pass another one, and batch sizes differ by one at most."""
    batches = Batches(rows, batch_size=5, seed=0)
    assert batches.steps_per_pass == 5
    passes = [[batches.at(5 * number + place).labels for place in range(5)] for number in range(3)]
    orders = [torch.cat(labels).tolist() for labels in passes]
    assert all(sorted(order) == list(range(23)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert {len(labels) for labels in passes[0]} == {4, 5}


def test_places_tell_which_rows_a_batch_holds(rows: Rows) -> None:
    """In the batch's own order, also of a pass that has not begun."""
    batches = Batches(rows, batch_size=6, augmentation="flip", seed=2)
    ahead = batches.places(9)
    assert torch.equal(batches.at(2).labels, rows.labels[batches.places(2)])
    assert torch.equal(batches.at(9).labels, rows.labels[ahead])


def test_images_stay_with_their_labels(rows: Rows) -> None:
    """Shuffling moves an image and its label together."""
    batch = Batches(rows, batch_size=6, seed=3).at(7)
    assert torch.equal(batch.images, rows.images[batch.labels])


def test_a_batch_follows_from_seed_and_step_alone(rows: Rows) -> None:
    """Any step's batch is the same, whatever was asked for before; another seed gives another one."""
    forwards = Batches(rows, batch_size=5, augmentation="flip_crop", seed=9)
    seen = [forwards.at(step) for step in range(12)]
    for step in (11, 2, 7):
        afresh = Batches(rows, batch_size=5, augmentation="flip_crop", seed=9).at(step)
        assert torch.equal(afresh.images, seen[step].images)
        assert torch.equal(afresh.labels, seen[step].labels)
    other = Batches(rows, batch_size=5, seed=10)
    assert [other.at(step).labels.tolist() for step in range(5)] != [b.labels.tolist() for b in seen[:5]]


def test_rows_are_augmented_anew_each_pass(rows: Rows) -> None:
    """The same row comes in other shapes in later passes: nothing is cached as itertools.cycle would."""
    batches = Batches(rows, batch_size=23, augmentation="flip_crop", seed=0)
    variants = [batches.at(number).images[batches.at(number).labels == 4] for number in range(6)]
    assert len({variant.numpy().tobytes() for variant in variants}) > 2


def test_batches_of_a_pass_are_augmented_apart() -> None:
    """Equal images are not shifted by the same pattern in the next batch of the same pass."""
    image = np.arange(1, 17, dtype=np.uint8).reshape(1, 4, 4, 1)
    equal = Rows.of(np.repeat(image, 20, axis=0), np.arange(20))
    batches = Batches(equal, batch_size=10, augmentation="flip_crop", seed=0)
    assert not torch.equal(batches.at(0).images, batches.at(1).images)


def test_batches_larger_than_the_set_are_the_set(rows: Rows) -> None:
    """A small forget set comes whole, once a step."""
    batches = Batches(rows, batch_size=64, seed=0)
    assert batches.steps_per_pass == 1
    assert sorted(batches.at(5).labels.tolist()) == list(range(23))


def test_no_rows_no_batches(rows: Rows) -> None:
    """An empty set is refused instead of looping over nothing."""
    with pytest.raises(ValueError, match="no rows"):
        Batches(rows.take(slice(0, 0)), batch_size=4, seed=0)


def test_in_order_covers_all_rows_once(rows: Rows) -> None:
    """Evaluation sees every row once, in the order of the set."""
    parts = list(rows.in_order(10))
    assert [len(part) for part in parts] == [10, 10, 3]
    assert torch.equal(torch.cat([part.labels for part in parts]), rows.labels)
