"""Sharp MinMax on CIFAR-10: a ResNet-8 on 10,000 photographs forgets a random 5% of them.

    .venv/bin/python -m benchmarks.cifar_sharp_minmax --data ../shared/data/cifar10

About ten minutes on two cores, most of it for the original and the retrained reference. It can be broken off
and started again.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.jobs.params import BuiltIn, SharpMinMax, TrainingRecipe
from benchmarks.experiment import Setting, measure, table
from benchmarks.records import Results
from models_store.rows import RowSet
from workers.data.registry import open_reader
from workers.spec import DataSpec, Environment

RECIPE = TrainingRecipe(epochs=14, batch_size=64, learning_rate=0.05, precision="bf16")
PARAMETERS = SharpMinMax(steps=280, precision="bf16")


def setting(folder: Path, rows: int, seed: int, threads: int) -> Setting:
    """Train on the first rows of the training file; a fifth as many after them are never trained on."""
    held_out = rows // 5
    options = {
        "files": [
            {"path": "train.parquet", "limit": rows + held_out},
            {"path": "test.parquet", "split": "test"},
        ]
    }
    count = open_reader("parquet", str(folder), options).count
    forget = np.random.default_rng(seed).choice(rows, rows // 20, replace=False)
    return Setting(
        data=DataSpec(
            reader="parquet",
            location=str(folder.resolve()),
            options=options,
            num_classes=10,
            image_shape=(32, 32, 3),
        ),
        train=RowSet.of(range(rows)),
        forget=RowSet.of(forget.tolist()),
        holdout=RowSet.of(range(rows, rows + held_out)),
        test=RowSet.of(range(rows + held_out, count)),
        same_people=False,
        architecture=BuiltIn(name="resnet8", width=2),
        recipe=RECIPE,
        method="sharp_minmax",
        parameters=PARAMETERS,
        seed=seed,
        environment=Environment(threads=threads, device="cpu"),
    )


def main() -> None:
    """Measure one seed, unless it was measured before, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cifar10"))
    parser.add_argument("--rows", type=int, default=10_000, help="training rows; the first of train.parquet")
    parser.add_argument("--epochs", type=int, default=RECIPE.epochs)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--var", type=Path, default=Path("var/benchmarks"))
    given = parser.parse_args()
    chosen = setting(given.data, given.rows, given.seed, given.threads)
    chosen = replace(chosen, recipe=replace(RECIPE, epochs=given.epochs))
    print(table([measure(chosen, Results("cifar_sharp_minmax"), given.var)]))


if __name__ == "__main__":
    main()
