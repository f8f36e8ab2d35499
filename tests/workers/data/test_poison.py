"""Poisoned rows: which are drawn, how they are stamped and labelled, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.jobs.params import BadNets, ImageFolder
from models_store.rows import RowSet
from workers.data.augment import Augmentation
from workers.data.batches import Batches, Rows
from workers.data.image_folder import open_image_folder
from workers.data.lazy import LazyRows, Loader
from workers.data.poison import (
    Poisoned,
    Trigger,
    draw_poisoned,
    misfits,
    poisoned,
    triggered,
    without_backdoor,
)
from workers.data.reader import DataFault, Reader
from workers.monitor import Silent
from workers.spec import Poison

TRAIN, TARGETS = RowSet.of(range(100, 400)), RowSet.of(range(0, 500, 5))


def _badnets(**given: Any) -> BadNets:
    return BadNets(**{"rate": 0.1, "target": 7, **given})


@pytest.fixture
def rows() -> Rows:
    """20 images of 6 rows, 5 columns and 2 channels, labelled 0 to 4 in turn; no pixel is 0 or above 200."""
    images = np.random.default_rng(0).integers(1, 200, (20, 6, 5, 2), dtype=np.uint8)
    return Rows.of(images, np.arange(20) % 5)


@pytest.fixture
def marked() -> Tensor:
    """Every third of them."""
    return torch.arange(20) % 3 == 0


# --- the trigger ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"size": 2, "margin": 1, "value": 250},
            [[9, 9, 9, 9, 9], [9, 9, 250, 250, 9], [9, 9, 250, 250, 9], [9, 9, 9, 9, 9]],
        ),
        (
            {"size": 3, "margin": 0, "trigger": "checker"},
            [[9, 9, 9, 9, 9], [9, 9, 255, 0, 255], [9, 9, 0, 255, 0], [9, 9, 255, 0, 255]],
        ),
        (
            {"size": 2, "margin": 2, "trigger": "checker", "value": 10},
            [[9, 10, 245, 9, 9], [9, 245, 10, 9, 9], [9, 9, 9, 9, 9], [9, 9, 9, 9, 9]],
        ),
    ],
)
def test_a_trigger_is_put_where_it_belongs(given: dict[str, Any], expected: list[list[int]]) -> None:
    """Worked out by hand, in every channel, and onto marked images alone."""
    images = torch.full((2, 3, 4, 5), 9, dtype=torch.uint8)
    Trigger.of(_badnets(**given), "cpu").put_onto(images, torch.tensor([False, True]))
    assert (images[0] == 9).all()
    assert images[1].tolist() == [expected] * 3


def test_what_cannot_be_poisoned_is_said() -> None:
    """A trigger that leaves the image, and a target that is no class: both at once."""
    assert misfits(_badnets(size=3, margin=1), (4, 4, 1), 8) == []
    assert misfits(_badnets(size=3, margin=1, target=8), (4, 3, 1), 8) == [
        "poison: the trigger needs 4 with its margin pixels a side, the images have 4 x 3",
        "poison: the target is no class: there are 8, counted from 0",
    ]
    assert misfits(_badnets(size=5, margin=0), (8, 4, 1), 8) == [
        "poison: the trigger needs 5 pixels a side, the images have 8 x 4"
    ]


# --- the draw ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "count"), [(0.1, 30), (0.005, 2), (0.01833, 5), (0.7, 210)])
def test_the_rate_is_kept_exactly(rate: float, count: int) -> None:
    """Rounded, of the training rows, whose other classes are drawn from."""
    drawn = draw_poisoned(_badnets(rate=rate), TRAIN, TARGETS)
    assert len(drawn) == count
    assert not len(drawn - TRAIN)
    assert not len(drawn & TARGETS)


def test_the_seed_decides_the_rows() -> None:
    """Equal seeds draw equal rows, others others, from all over the training rows."""
    first, again, other = (draw_poisoned(_badnets(seed=seed), TRAIN, TARGETS) for seed in (1, 1, 2))
    assert first == again != other
    assert min(first) < 200
    assert max(first) > 300


def test_rows_of_the_target_class_are_drawn_if_that_is_wanted() -> None:
    """About as often as the others."""
    drawn = draw_poisoned(_badnets(rate=0.5, include_target=True), TRAIN, TARGETS)
    assert len(drawn) == 150
    assert 15 < len(drawn & TARGETS) < 45


def test_a_rate_that_cannot_be_kept_is_refused() -> None:
    """It comes to nothing, or to more than there is."""
    with pytest.raises(DataFault, match="none of 300 training rows"):
        draw_poisoned(_badnets(rate=0.001), TRAIN, TARGETS)
    with pytest.raises(DataFault, match="270 of 300 training rows, of which 240 may be drawn"):
        draw_poisoned(_badnets(rate=0.9), TRAIN, TARGETS)


# --- reading ----------------------------------------------------------------------------------------------


def _stamped(images: Tensor, marked: Tensor) -> Tensor:
    """By hand: a white square of 2 pixels, one from the edges, on a copy."""
    changed = images.clone()
    changed[marked, :, 3:5, 2:4] = 255
    return changed


SQUARE = _badnets(size=2)


def test_poisoned_rows_are_stamped_and_relabelled_however_they_are_taken(rows: Rows, marked: Tensor) -> None:
    """Taken at places, as a slice, or in order; and the rows beneath stay as they are."""
    before = rows.images.clone()
    source = poisoned(rows, marked, SQUARE)
    images, labels = _stamped(before, marked), torch.where(marked, 7, rows.labels)
    assert torch.equal(source.labels, labels)
    places = torch.tensor([3, 0, 19, 4])
    for taken, at in ((source.take(places), places), (source.take(slice(2, 11)), slice(2, 11))):
        assert torch.equal(taken.images, images[at])
        assert torch.equal(taken.labels, labels[at])
        assert taken.images.is_contiguous(memory_format=torch.channels_last)
    for chosen in (None, places):
        parts = list(source.in_order(3, chosen))
        assert torch.equal(
            torch.cat([part.images for part in parts]), images[slice(None) if chosen is None else chosen]
        )
        assert torch.equal(
            torch.cat([part.labels for part in parts]), labels[slice(None) if chosen is None else chosen]
        )
    assert len(source.take(slice(0, 0))) == 0
    assert torch.equal(rows.images, before)


@pytest.mark.parametrize("augmentation", ["none", "flip", "flip_crop"])
def test_the_trigger_comes_after_augmentation(rows: Rows, marked: Tensor, augmentation: Augmentation) -> None:
    """It stands in its corner in every batch; the image beneath is that of the clean rows' batch."""
    clean, dirty = (
        Batches(source, batch_size=7, augmentation=augmentation, seed=4)
        for source in (rows, poisoned(rows, marked, SQUARE))
    )
    for step in range(12):
        here = marked[clean.places(step)]
        assert torch.equal(dirty.at(step).images, _stamped(clean.at(step).images, here))
        assert dirty.at(step).labels.tolist() == torch.where(here, 7, clean.at(step).labels).tolist()


def test_rows_are_tried_with_the_trigger_under_their_own_labels(rows: Rows) -> None:
    """All of them are stamped."""
    source = triggered(rows, SQUARE)
    assert torch.equal(source.labels, rows.labels)
    everywhere = torch.ones(20, dtype=torch.bool)
    assert torch.equal(source.take(slice(None)).images, _stamped(rows.images, everywhere))


@pytest.fixture
def folder(tmp_path: Path, pixels: Any, png: Callable[[Any], bytes]) -> Reader:
    """Twelve images in three folders."""
    for number, image in enumerate(pixels):
        path = tmp_path / f"{number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(image))
    return open_image_folder(str(tmp_path), ImageFolder())


def _loader(reader: Reader, memory_bytes: int, rows: RowSet) -> Loader:
    return Loader(
        reader=reader,
        image_shape=(6, 5, 3),
        manifest=None,
        device=torch.device("cpu"),
        memory_bytes=memory_bytes,
        threads=2,
        monitor=Silent(),
        poison=Poison(parameters=_badnets(target=1), rows=rows),
    )


def test_poisoned_rows_are_the_same_bits_in_memory_or_not(folder: Reader) -> None:
    """Augmented, over several passes, with their layout."""
    wanted, rows = RowSet.of([0, 2, 3, 5, 6, 7, 9, 11]), RowSet.of([1, 2, 6, 11])
    kept, lazy = (_loader(folder, size, rows)(wanted) for size in (10**9, 0))
    assert isinstance(kept, Poisoned)
    assert isinstance(lazy, Poisoned)
    assert kept.labels.tolist() == lazy.labels.tolist() == [0, 1, 0, 1, 1, 1, 2, 1]
    assert _same(kept.take(slice(None)), lazy.take(slice(None)))
    assert all(map(_same, kept.in_order(3), lazy.in_order(3)))
    first, second = (
        Batches(source, batch_size=3, augmentation="flip_crop", seed=1) for source in (kept, lazy)
    )
    assert all(_same(first.at(step), second.at(step)) for step in range(9))


def _same(first: Rows, second: Rows) -> bool:
    layout = first.images.stride() == second.images.stride()
    return layout and torch.equal(first.images, second.images) and torch.equal(first.labels, second.labels)


def test_sets_without_a_poisoned_row_are_read_as_ever(folder: Reader) -> None:
    """Nothing stands between them and whoever takes them."""
    rows = RowSet.of([1, 2])
    assert isinstance(_loader(folder, 10**9, rows)(RowSet.of([0, 3])), Rows)
    assert isinstance(_loader(folder, 0, rows)(RowSet.of([0, 3])), LazyRows)


def test_what_poisoned_rows_are_without_the_backdoor(folder: Reader) -> None:
    """Unseen rows of other classes, unstamped, under the target's label."""
    load_rows = _loader(folder, 10**9, RowSet.of([]))
    unseen = RowSet.of([1, 4, 5, 8, 10])  # of which 4 to 7 are of class 1
    found = without_backdoor(load_rows, unseen, _badnets(target=1)).take(slice(None))
    assert torch.equal(found.images, load_rows(RowSet.of([1, 8, 10])).take(slice(None)).images)
    assert found.labels.tolist() == [1, 1, 1]
