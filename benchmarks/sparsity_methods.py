"""Methods after plain and after gradient-sparsity training, each arm against networks retrained its own way.

    .venv/bin/python -m benchmarks.sparsity --data ../shared/data/cifar10
    .venv/bin/python -m benchmarks.sparsity_methods --data ../shared/data/cifar10 --arms plain exact
    .venv/bin/python -m benchmarks.sparsity_methods --data ../shared/data/cifar10 --arms finite_difference

To be forgotten is a random tenth of the rows, or a class. Each method has three settings, the same in all
arms, and all are run on all seeds. The report takes the one that comes nearest to the arm's own retrained
network on the tuning seed, by Avg. Gap, and leaves that seed out. A second retrained network says how near
one retraining comes to another. `exact` is trained on seed 0 alone and takes the settings that
`finite_difference` was given. Methods do not stop by themselves here: the last network counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks.cifar import Case, ForgetSet
from benchmarks.sparsity import ARMS, SEEDS, TUNING, Arm, arguments, settled_rho, task
from benchmarks.trials import AGAIN, Trial, measure
from workers.answers import Answers
from workers.training.loop import Diverged

KINDS: tuple[ForgetSet, ...] = ("random", "class")
RESULTS = "sparsity_methods"
_EXACT_SEEDS = (0,)
_STEPS = {"precision": "fp32", "readings": 0}
_READING_R = {**_STEPS, "retain_batch_size": 32}


@dataclass(frozen=True)
class Grid:
    """What a method is told: in every setting, and in each of the three that are compared."""

    fixed: Mapping[str, Any]
    settings: tuple[Mapping[str, Any], ...]


def _each(name: str, *values: float) -> tuple[Mapping[str, Any], ...]:
    return tuple({name: value} for value in values)


GRIDS: Mapping[str, Grid] = {
    "finetune": Grid({**_READING_R, "steps": 130}, _each("learning_rate", 0.02, 0.06, 0.2)),
    "gradient_ascent": Grid(
        {**_STEPS, "steps": 40, "forget_batch_size": 32}, _each("learning_rate", 1e-4, 3e-4, 1e-3)
    ),
    "influence": Grid({"retain_sample": 256, "iterations": 8, "damping": 1.0}, _each("scale", 1.0, 2.0, 4.0)),
    "fisher_forgetting": Grid({"retain_sample": 256}, _each("noise", 2e-5, 1e-4, 5e-4)),
    "l1_sparse": Grid({**_READING_R, "steps": 130, "learning_rate": 0.05}, _each("l1", 1e-4, 5e-4, 2e-3)),
    "sharp_minmax": Grid({**_READING_R, "steps": 60}, _each("alpha", 0.3, 0.6, 0.9)),
}


def trials(arm: Arm) -> Iterator[Trial]:
    """Every method in every setting, as it is tried in an arm."""
    for method, grid in GRIDS.items():
        for tried in grid.settings:
            yield Trial(method, grid.fixed, tried, {"arm": arm})


def _run(case: Case, arm: Arm) -> None:
    known = Answers()
    again = [] if case.seed == TUNING else [Trial(AGAIN, {}, about={"arm": arm})]
    for trial in (*again, *trials(arm)):
        row = measure(RESULTS, case, trial, known)
        figures = row["figures"]
        came_to = row["fault"] if figures is None else f"Avg. Gap {100 * figures['average_gap']:.2f}"
        print(case.kind, case.seed, arm, trial.method, dict(trial.tried), came_to, flush=True)


def main() -> None:
    """Compute the rows that are missing, of the seeds and arms that are named."""
    given = arguments(__doc__, seeds=(TUNING, *SEEDS), arms=ARMS).parse_args()
    rho = settled_rho()
    for seed, arm, kind in product(given.seeds, given.arms, KINDS):
        if arm == "exact" and seed not in _EXACT_SEEDS:
            continue
        try:
            _run(Case(given.data, seed, given.var, kind, task(arm, rho)), arm)
        except Diverged as reason:
            print(kind, seed, arm, reason, flush=True)


if __name__ == "__main__":
    main()
