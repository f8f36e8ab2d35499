"""CIFAR-10 cases: for each seed an original network, its forget set, and a network retrained without it.

    .venv/bin/python -m benchmarks.cifar --data ../shared/data/cifar10 --seeds 0 1 2 3 4
    .venv/bin/python -m benchmarks.cifar --seeds 0 --forget high mid low class

A ResNet-8 of base width 32 learns 10,000 photographs without augmentation, well enough to memorise many. What
is to be forgotten is a random 5% of them; or the 5% that are memorised most, least or middlingly, by how sure
the network was of them while it learned; or a whole class. A network takes about five minutes on one core.
The weights lie in var/, where other benchmarks find them; what they came to is committed. A training that is
broken off goes on from its newest checkpoint.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow.parquet as pq

from app.jobs.params import BuiltIn, TrainingRecipe, plain_data
from app.registry.tiers import tier
from benchmarks.experiment import Desk
from benchmarks.records import Results
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import pipeline
from workers.data.seeds import derived_seed
from workers.spec import DataSpec, Environment, TrainSpec
from workers.training.confidence import scores

TRAIN, HOLDOUT, VALIDATION, TEST = 10_000, 4_000, 2_000, 4_000
RECIPE = TrainingRecipe(epochs=14, batch_size=64, learning_rate=0.05, precision="bf16")
ARCHITECTURE = BuiltIn(name="resnet8", width=2)
FORGET = TRAIN // 20
CLASS = 3  # the one that is forgotten whole
RETRAIN_PASSES = RECIPE.epochs * -(-(TRAIN - FORGET) // RECIPE.batch_size)
ENVIRONMENT = Environment(threads=1, device="cpu")

ForgetSet = Literal["random", "high", "mid", "low", "class"]


@dataclass(frozen=True)
class Case:
    """One seed's rows, and its networks once they are trained.

    Attributes:
        data: The folder of the data set's parquet files.
        seed: Decides the forget set, and the original's and the reference's training.
        var: Where weights and checkpoints lie.
        kind: Which rows are to be forgotten.
    """

    data: Path
    seed: int
    var: Path
    kind: ForgetSet = "random"

    @property
    def train(self) -> RowSet:
        """All rows that the original was trained on."""
        return RowSet.below(TRAIN)

    @cached_property
    def forget(self) -> RowSet:
        """F: see `kind`."""
        if self.kind == "random":
            draw = np.random.default_rng(derived_seed(self.seed, "forget"))
            return RowSet.of(draw.choice(TRAIN, FORGET, replace=False).tolist())
        if self.kind == "class":
            labels = pq.read_table(self.data / "train.parquet", columns=["label"])["label"].to_numpy()[:TRAIN]
            return RowSet.of(np.flatnonzero(labels == CLASS).tolist())
        proxy = self.store.get(self.original["figures"]["memorisation"]["proxy"])
        return RowSet.of(tier(scores(proxy, self.train).tolist(), FORGET, self.kind))

    @property
    def retain(self) -> RowSet:
        """R."""
        return self.train - self.forget

    @property
    def holdout(self) -> RowSet:
        """H: the attack's rows that were never trained on."""
        return RowSet.below(TRAIN + HOLDOUT) - self.train

    @property
    def validation(self) -> RowSet:
        """Rows that methods are tuned by and judge themselves by."""
        return RowSet.below(TRAIN + HOLDOUT + VALIDATION) - RowSet.below(TRAIN + HOLDOUT)

    @property
    def test(self) -> RowSet:
        """T: the data set's own test rows."""
        start = TRAIN + HOLDOUT + VALIDATION
        return RowSet.below(start + TEST) - RowSet.below(start)

    @property
    def spec(self) -> DataSpec:
        """How the rows are read."""
        files = [
            {"path": "train.parquet", "limit": TRAIN + HOLDOUT + VALIDATION},
            {"path": "test.parquet", "split": "test"},
        ]
        return DataSpec(
            reader="parquet",
            location=str(self.data.resolve()),
            options={"files": files},
            num_classes=10,
            image_shape=(32, 32, 3),
        )

    @property
    def store(self) -> BlobStore:
        """Where the weights are."""
        return BlobStore(str(self.var / "store"))

    def desk(self, name: str) -> Desk:
        """A monitor whose checkpoint is this case's."""
        return Desk(self.var / f"cifar-{self.seed}-{self.kind}-{name}.checkpoint")

    @cached_property
    def original(self) -> dict[str, Any]:
        """The network trained on everything: {"weights", "figures"}."""
        return self._trained("original", self.train, self.seed)

    @cached_property
    def reference(self) -> dict[str, Any]:
        """The network retrained on R: {"weights", "figures"}."""
        return self._trained("reference", self.retain, derived_seed(self.seed, "reference"))

    def _trained(self, name: str, rows: RowSet, seed: int) -> dict[str, Any]:
        setting = {
            "name": name,
            "rows": rows.digest,
            "seed": seed,
            "architecture": plain_data(ARCHITECTURE),
            "recipe": plain_data(RECIPE),
            "threads": ENVIRONMENT.threads,
        }
        results = Results("cifar_networks")
        row = results.of(setting)
        if row is None or not self.store.has(row["weights"]):
            self.var.mkdir(parents=True, exist_ok=True)
            spec = TrainSpec(
                data=self.spec,
                architecture=ARCHITECTURE,
                recipe=RECIPE,
                train=rows,
                validation=self.validation,
                test=self.test,
                seed=seed,
                environment=ENVIRONMENT,
            )
            done = pipeline.train(spec, self.store, self.desk(name))
            made = {"setting": setting, "weights": done.weights, "figures": dict(done.figures)}
            if row is None:
                results.add(made)
            row = made
        return row


def cases(given: argparse.Namespace) -> list[Case]:
    """Those that the command line names."""
    return [Case(given.data, seed, given.var, kind) for kind in given.forget for seed in given.seeds]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser of what all these benchmarks are told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cifar10"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--forget", nargs="+", choices=get_args(ForgetSet), default=["random"])
    parser.add_argument("--var", type=Path, default=Path("var/benchmarks"))
    return parser


def main() -> None:
    """Train the networks that are not trained yet, and print what they came to."""
    for case in cases(arguments(__doc__).parse_args()):
        for name, network in (("original", case.original), ("reference", case.reference)):
            counts = network["figures"]["accuracy"]
            shares = " ".join(f"{part} {100 * n['correct'] / n['n']:.2f}" for part, n in counts.items())
            print(f"seed {case.seed}, {case.kind}, {name}: {shares}, {network['figures']['seconds']:.0f} s")


if __name__ == "__main__":
    main()
