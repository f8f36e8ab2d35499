"""Sharp MinMax on mislabelled digits over several seeds: does it forget what was memorised, and only that?

    .venv/bin/python -m benchmarks.digits_sharp_minmax --seeds 5

The demo's data, network and method. Each seed deals the rows anew. A few seconds a seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from app.jobs.params import BuiltIn, RoleShares, SharpMinMax, TrainingRecipe
from benchmarks.experiment import Results, Setting, measure, table
from models_store.rows import RowSet
from workers.data.reader import rows
from workers.data.registry import open_reader
from workers.data.roles import draw_roles
from workers.spec import DataSpec, Environment

RECIPE = TrainingRecipe(epochs=40, weight_decay=5e-3, precision="fp32")
PARAMETERS = SharpMinMax(steps=80, alpha=0.9, learning_rate=0.02, precision="fp32")
MISLABELLED = 7


def setting(seed: int) -> Setting:
    """Forget all rows of the contributors who were wrong; judge by their rows that were kept back."""
    options = {"mislabelled_subjects": MISLABELLED, "seed": seed}
    registered = list(rows(open_reader("sklearn_digits", "", options)))
    roles = draw_roles([row.split for row in registered], RoleShares(), seed)
    wrong = RowSet.of(
        row.ordinal for row in registered if row.subject and row.subject < f"contributor-{MISLABELLED:02d}"
    )

    def role(name: str) -> RowSet:
        return RowSet.of(ordinal for ordinal, other in enumerate(roles) if other == name)

    return Setting(
        data=DataSpec(
            reader="sklearn_digits", location="", options=options, num_classes=10, image_shape=(8, 8, 1)
        ),
        train=role("train"),
        forget=role("train") & wrong,
        holdout=role("holdout") & wrong,
        test=role("test"),
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
