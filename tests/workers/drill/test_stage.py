from __future__ import annotations

import numpy as np
import torch

from workers.data.batches import Rows
from workers.drill.recipes import digits
from workers.drill.stage import Canaries, Recipe, Stage


def images_of(rows: Rows) -> list[bytes]:
    return [image.numpy().tobytes() for image in rows.images.contiguous()]


def test_a_coin_alone_decides_who_trains(recipe: Recipe) -> None:
    """About half of the canaries are included; over many draws each is, about every other time."""
    often = np.zeros(180)
    for seed in range(100):
        canaries = Canaries.drawn(recipe, "ordinary", seed)
        assert len(canaries.rows) == 180
        assert sorted([*canaries.included, *canaries.excluded]) == list(range(180))
        often[canaries.included] += 1
    assert often.min() >= 25
    assert often.max() <= 75
    assert abs(often.mean() - 50) < 2


def test_canaries_have_wrong_labels_and_ordinary_rows_their_own(recipe: Recipe) -> None:
    """The same images by the same seed."""
    wrong, right = (Canaries.drawn(recipe, kind, 5).rows for kind in ("canaries", "ordinary"))
    assert torch.equal(wrong.images, right.images)
    assert not (wrong.labels == right.labels).any()
    assert wrong.labels.max() < 10


def test_the_sets_of_a_deletion(stage: Stage) -> None:
    """F trained and R did; H did not; no row is in two of them, and none of R is in F."""
    assert len(stage.forget) == stage.size == 20
    sizes = len(stage.canaries.included), len(stage.canaries.excluded)
    assert (len(stage.retain), len(stage.holdout)) == (420 + sizes[0] - 20, sizes[1])
    every = [images_of(rows) for rows in (stage.forget, stage.retain, stage.holdout, stage.recipe.test)]
    assert not set(every[0]) & set(every[1])
    assert not set(every[0]) & set(every[2])
    assert not set(every[1]) & set(every[2])


def test_no_more_is_forgotten_than_there_is(recipe: Recipe) -> None:
    """A large number means all of the canaries that trained."""
    canaries = Canaries.drawn(recipe, "canaries", 1)
    whole = Stage(recipe, canaries, "canaries", 10_000, 1)
    assert whole.size == len(whole.forget) == len(canaries.included)
    assert len(whole.retain) == len(canaries.base)


def test_the_same_seed_gives_the_same_bits(stage: Stage, recipe: Recipe) -> None:
    """Networks of a stage are trained anew to the last bit, and no two of one stage are the same."""
    again = Stage(recipe, Canaries.drawn(recipe, "canaries", 3), "canaries", 20, 3)
    one, two = stage.honest.state_dict(), again.honest.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    weight = next(name for name in one if name.endswith("weight"))
    assert not torch.equal(one[weight], stage.oracle.state_dict()[weight])


def test_digits_keep_test_rows_apart() -> None:
    """1,797 rows: those the reader sets apart for tests, a hundred to validate by, the rest to train on."""
    recipe = digits()
    assert (len(recipe.train), len(recipe.validation), len(recipe.test)) == (1337, 100, 360)
