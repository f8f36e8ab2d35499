"""Sharp MinMax on mislabelled digits over several seeds: does it forget what was memorised, and only that?

    .venv/bin/python -m benchmarks.digits_sharp_minmax --seeds 5

The demo's data, network and method. Each seed deals the rows anew. A few seconds a seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from app.jobs.params import BuiltIn, RoleShares, SharpMinMax, TrainingRecipe
from benchmarks.experiment import Setting, measure, table
from benchmarks.records import Results
from models_store.rows import RowSet
from workers.data.registry import open_reader
from workers.data.roles import draw_roles, split_codes
from workers.spec import DataSpec, Environment

RECIPE = TrainingRecipe(epochs=40, weight_decay=5e-3, precision="fp32")
PARAMETERS = SharpMinMax(steps=80, alpha=0.8, precision="fp32")
MISLABELLED = 7


def setting(seed: int) -> Setting:
    """Forget all rows of the contributors who were wrong; judge by their rows that were kept back."""
    options = {"mislabelled_subjects": MISLABELLED, "seed": seed}
    (rows,) = open_reader("sklearn_digits", "", options).chunks()
    roles = draw_roles(split_codes(rows.splits, len(rows)), RoleShares(), seed)
    wrong = RowSet.of(
        ordinal
        for ordinal, subject in enumerate(rows.subjects or ())
        if subject and subject < f"contributor-{MISLABELLED:02d}"
    )
    return Setting(
        data=DataSpec(
            reader="sklearn_digits", location="", options=options, num_classes=10, image_shape=(8, 8, 1)
        ),
        train=roles["train"],
        forget=roles["train"] & wrong,
        holdout=roles["holdout"] & wrong,
        test=roles["test"],
        validation=roles["validation"],
        kin=roles["validation"] & wrong,
        same_people=True,
        architecture=BuiltIn(name="small_cnn"),
        recipe=RECIPE,
        method="sharp_minmax",
        parameters=PARAMETERS,
        seed=seed,
        environment=Environment(threads=1, device="cpu"),
    )


def main() -> None:
    """Measure the seeds that are not measured yet and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--var", type=Path, default=Path("var/benchmarks"))
    given = parser.parse_args()
    results = Results("digits_sharp_minmax")
    print(table([measure(setting(seed), results, given.var) for seed in range(given.seeds)]))


if __name__ == "__main__":
    main()
