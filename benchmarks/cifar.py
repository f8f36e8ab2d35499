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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow.parquet as pq

from app.jobs.params import Architecture, BadNets, BuiltIn, MethodParameters, TrainingRecipe, plain_data
from app.registry.tiers import tier
from benchmarks.experiment import Desk
from benchmarks.records import Results
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import pipeline
from workers.data.poison import draw_poisoned
from workers.data.seeds import derived_seed
from workers.spec import DataSpec, Environment, Learned, Poison, TrainSpec, UnlearnSpec, Version
from workers.training.confidence import scores
from workers.training.loop import Diverged

TRAIN, HOLDOUT, VALIDATION, TEST = 10_000, 4_000, 2_000, 4_000
RECIPE = TrainingRecipe(epochs=14, batch_size=64, learning_rate=0.05, precision="bf16")
ARCHITECTURE = BuiltIn(name="resnet8", width=2)
FORGET = TRAIN // 20
CLASS = 3  # the one that is forgotten whole
RETRAIN_PASSES = RECIPE.epochs * -(-(TRAIN - FORGET) // RECIPE.batch_size)
ENVIRONMENT = Environment(threads=1, device="cpu")

ForgetSet = Literal["random", "high", "mid", "low", "class"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is learned, and how much of it is to be forgotten.

    Attributes:
        name: What its checkpoints are called.
        networks: The results that its networks' rows are in.
        train: How many rows are learned; so for the other roles.
        forget: How many of them are forgotten, where neither a class nor the poison decides that.
        poison: The backdoor that is learned with them, for cases of the kind `poisoned`.
    """

    name: str = "cifar"
    networks: str = "cifar_networks"
    train: int = TRAIN
    holdout: int = HOLDOUT
    validation: int = VALIDATION
    test: int = TEST
    forget: int = FORGET
    architecture: Architecture = ARCHITECTURE
    recipe: TrainingRecipe = RECIPE
    poison: BadNets | None = None


TASK = Task()


@dataclass(frozen=True)
class Case:
    """One seed's rows, and its networks once they are trained.

    Attributes:
        data: The folder of the data set's parquet files.
        seed: Decides the forget set, and the original's and the reference's training.
        var: Where weights and checkpoints lie.
        kind: Which rows are to be forgotten.
        task: What is learned.
    """

    data: Path
    seed: int
    var: Path
    kind: ForgetSet | Literal["poisoned"] = "random"
    task: Task = TASK

    @property
    def train(self) -> RowSet:
        """All rows that the original was trained on."""
        return RowSet.below(self.task.train)

    @cached_property
    def forget(self) -> RowSet:
        """F: see `kind`."""
        if self.kind == "poisoned":
            if self.poison is None:
                raise ValueError(f"nothing is poisoned in {self.task.name}")
            return self.poison.rows
        if self.kind == "random":
            draw = np.random.default_rng(derived_seed(self.seed, "forget"))
            return RowSet.of(draw.choice(self.task.train, self.task.forget, replace=False).tolist())
        if self.kind == "class":
            return self._of_class(CLASS)
        proxy = self.store.get(self.original["figures"]["memorisation"]["proxy"])
        return RowSet.of(tier(scores(proxy, self.train).tolist(), self.task.forget, self.kind))

    @cached_property
    def poison(self) -> Poison | None:
        """The task's backdoor, and the rows that this seed puts it into."""
        if self.task.poison is None:
            return None
        parameters = replace(self.task.poison, seed=derived_seed(self.seed, "poison"))
        rows = draw_poisoned(parameters, self.train, self._of_class(parameters.target))
        return Poison(parameters=parameters, rows=rows)

    @property
    def retain(self) -> RowSet:
        """R."""
        return self.train - self.forget

    @property
    def holdout(self) -> RowSet:
        """H: the attack's rows that were never trained on."""
        start = self.task.train
        return RowSet.below(start + self.task.holdout) - RowSet.below(start)

    @property
    def validation(self) -> RowSet:
        """Rows that methods are tuned by and judge themselves by."""
        return RowSet.below(self._trains) - RowSet.below(self._trains - self.task.validation)

    @property
    def test(self) -> RowSet:
        """T: the data set's own test rows."""
        return RowSet.below(self._trains + self.task.test) - RowSet.below(self._trains)

    @property
    def spec(self) -> DataSpec:
        """How the rows are read."""
        files = [
            {"path": "train.parquet", "limit": self._trains},
            {"path": "test.parquet", "split": "test"},
        ]
        return DataSpec(
            reader="parquet",
            location=str(self.data.resolve()),
            options={"files": files},
            num_classes=10,
            image_shape=(32, 32, 3),
            poison=self.poison,
        )

    @property
    def store(self) -> BlobStore:
        """Where the weights are."""
        return BlobStore(str(self.var / "store"))

    def desk(self, name: str) -> Desk:
        """A monitor whose checkpoint is this case's."""
        self.var.mkdir(parents=True, exist_ok=True)
        return Desk(self.var / f"{self.task.name}-{self.seed}-{self.kind}-{name}.checkpoint")

    @cached_property
    def original(self) -> dict[str, Any]:
        """The network trained on everything: {"weights", "figures"}. Raises Diverged."""
        return self.trained("original", self.train, self.seed)

    @cached_property
    def reference(self) -> dict[str, Any]:
        """The network retrained on R: {"weights", "figures"}. Raises Diverged."""
        return self.trained("reference", self.retain, derived_seed(self.seed, "reference"))

    @cached_property
    def again(self) -> dict[str, Any]:
        """A second network retrained on R: how far two of them differ. Raises Diverged."""
        return self.trained("again", self.retain, derived_seed(self.seed, "reference again"))

    def unlearning(self, method: str, parameters: MethodParameters, reference: str | None) -> UnlearnSpec:
        """To forget F by a method."""
        return UnlearnSpec(
            data=self.spec,
            original=Version(architecture=self.task.architecture, weights=self.original["weights"]),
            recipe=self.task.recipe,
            method=method,
            parameters=parameters,
            forget=self.forget,
            retain=self.retain,
            holdout=self.holdout,
            holdout_match="class",
            test=self.test,
            validation=self.validation,
            learned=Learned(blob=self.original["figures"]["memorisation"]["proxy"], rows=self.train),
            seed=derived_seed(self.seed, "unlearn"),
            references=() if reference is None else (reference,),
            environment=ENVIRONMENT,
        )

    def setting(self, name: str, rows: RowSet, seed: int) -> dict[str, Any]:
        """What a network's row is found by."""
        setting = {
            "name": name,
            "rows": rows.digest,
            "seed": seed,
            "architecture": plain_data(self.task.architecture),
            "recipe": plain_data(self.task.recipe),
            "threads": ENVIRONMENT.threads,
        }
        return setting if self.poison is None else {**setting, "poison": plain_data(self.poison.parameters)}

    @property
    def _trains(self) -> int:
        """How many rows of the file of training rows are read: those of T come behind them."""
        return self.task.train + self.task.holdout + self.task.validation

    def _of_class(self, number: int) -> RowSet:
        labels = pq.read_table(self.data / "train.parquet", columns=["label"])["label"].to_numpy()
        return RowSet.of(np.flatnonzero(labels[: self.task.train] == number).tolist())

    def trained(self, name: str, rows: RowSet, seed: int) -> dict[str, Any]:
        """A network trained on these rows by the task's recipe: {"weights", "figures"}. Raises Diverged."""
        setting = self.setting(name, rows, seed)
        results = Results(self.task.networks)
        row = results.of(setting)
        if row is None or (row["weights"] is not None and not self.store.has(row["weights"])):
            made = {"setting": setting, **self._training(name, rows, seed)}
            if row is None:
                results.add(made)
            row = made
        if row["weights"] is None:
            raise Diverged(f"{self.task.name}, seed {self.seed}: the {name} network diverged")
        return row

    def _training(self, name: str, rows: RowSet, seed: int) -> dict[str, Any]:
        spec = TrainSpec(
            data=self.spec,
            architecture=self.task.architecture,
            recipe=self.task.recipe,
            train=rows,
            validation=self.validation,
            test=self.test,
            seed=seed,
            environment=ENVIRONMENT,
        )
        try:
            done = pipeline.train(spec, self.store, self.desk(name))
        except Diverged:
            return {"weights": None, "figures": None}
        return {"weights": done.weights, "figures": dict(done.figures)}


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
