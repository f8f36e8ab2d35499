"""What a drill is played on: a recipe, coin-flipped canaries, and the networks of one deletion."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from app.jobs.params import Architecture, TrainingRecipe
from workers.audit.outputs import IntArray
from workers.data.batches import Rows
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed, generator
from workers.drill.expected import Kind
from workers.methods.run import Run
from workers.monitor import Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.train import Lesson, fit

REFERENCES = 4
_CANARY_SHARE = 0.3  # of the training rows


@dataclass(frozen=True)
class Recipe:
    """A registered recipe, and the rows that go with it, in memory."""

    name: str
    architecture: Architecture
    training: TrainingRecipe
    num_classes: int
    train: Rows
    validation: Rows
    test: Rows


@dataclass(frozen=True)
class Canaries:
    """Rows of which a fair coin of its own decided for each whether it trains.

    Attributes:
        rows: images and labels; wrong ones, of the kind "canaries".
        included: int64, places among them of those that train, in random order.
        excluded: int64, of the others.
        base: the training rows that are none.
    """

    rows: Rows
    included: IntArray
    excluded: IntArray
    base: Rows

    @classmethod
    def drawn(cls, recipe: Recipe, kind: Kind, seed: int) -> Canaries:
        """Draw them from the training rows, and flip the coins."""
        count = len(recipe.train)
        chosen = sampled_places(count, round(_CANARY_SHARE * count), derived_seed(seed, "canaries"))
        others = np.setdiff1d(np.arange(count), chosen)
        rng = np.random.default_rng(derived_seed(seed, "coins"))
        rows = recipe.train.take(torch.from_numpy(chosen))
        if kind == "canaries":
            wrong = rng.integers(1, recipe.num_classes, len(chosen))
            rows = Rows(rows.images, (rows.labels + torch.from_numpy(wrong)) % recipe.num_classes)
        coins = rng.random(len(chosen)) < 0.5
        shuffled = rng.permutation(np.flatnonzero(coins))
        return cls(rows, shuffled, np.flatnonzero(~coins), recipe.train.take(torch.from_numpy(others)))


@dataclass(frozen=True)
class Stage:
    """One deletion: so many of the canaries that trained are to be forgotten.

    The others that trained are kept. Those that never did are what the forgotten ones are compared with: a
    coin alone tells the two apart.
    """

    recipe: Recipe
    canaries: Canaries
    kind: Kind
    asked: int
    seed: int
    trained: dict[str, Network] = field(default_factory=dict)  # those that several stages share

    @property
    def size(self) -> int:
        """How many rows are to be forgotten: as many as asked for, or all there are."""
        return min(self.asked, len(self.canaries.included))

    @cached_property
    def forget(self) -> Rows:
        """F."""
        return self._of(self.canaries.included[: self.size])

    @cached_property
    def holdout(self) -> Rows:
        """H."""
        return self._of(self.canaries.excluded)

    @cached_property
    def retain(self) -> Rows:
        """R."""
        kept = self._of(self.canaries.included[self.size :])
        return joined(self.canaries.base, kept)

    @cached_property
    def original(self) -> Network:
        """Trained on R and F: the same whatever part of the canaries is to be forgotten."""
        if "original" not in self.trained:
            every = joined(self.canaries.base, self._of(np.sort(self.canaries.included)))
            self.trained["original"] = self._taught(every, "original")
        return self.trained["original"]

    @cached_property
    def references(self) -> tuple[Network, ...]:
        """Trained on R, by seeds of their own."""
        return tuple(self._taught(self.retain, f"reference {number}") for number in range(REFERENCES))

    @cached_property
    def honest(self) -> Network:
        """Trained on R once more: what an honest provider hands in."""
        return self._taught(self.retain, "honest")

    @cached_property
    def oracle(self) -> Network:
        """Trained on R by a dishonest provider, to imitate."""
        return self._taught(self.retain, "oracle")

    def run(self, network: Network) -> Run:
        """All that a method is given, to change this network."""
        return Run(
            network=network,
            retain=self.retain,
            forget=self.forget,
            validation=self.recipe.validation,
            recipe=self.recipe.training,
            seed=derived_seed(self.seed, "method", self.size),
            monitor=Silent(),
        )

    def _of(self, places: IntArray) -> Rows:
        return self.canaries.rows.take(torch.from_numpy(places))

    def _taught(self, rows: Rows, name: str) -> Network:
        seed = derived_seed(self.seed, name, len(rows))
        height, width = rows.images.shape[2:]
        shape = (height, width, rows.images.shape[1])
        first = generator(seed, "initialise")
        network = build(self.recipe.architecture, self.recipe.num_classes, shape, first)
        fit(network, Lesson(rows, self.recipe.training, seed, validation=self.recipe.validation), Silent())
        return network


def joined(first: Rows, second: Rows) -> Rows:
    """The rows of both, one after the other."""
    images = torch.cat([first.images, second.images]).contiguous(memory_format=torch.channels_last)
    return Rows(images, torch.cat([first.labels, second.labels]))
