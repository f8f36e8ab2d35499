"""What the benchmarks of gradient sparsity share: a small task, its arms, and the choice of rho.

    .venv/bin/python -m benchmarks.sparsity --data ../shared/data/cifar10

A ResNet-8 of base width 16 learns 4,000 photographs: half the width and less than half the rows of
benchmarks/cifar.py, because a step of gradient sparsity costs several plain ones. All arms compute in
float32, so that nothing but the objective differs. This trains the tuning seed's plain network and one for
each rho; the comparisons take the largest whose validation accuracy is at most `LOSS` below the plain one's,
or the smallest if none is. `exact` takes the rho of `finite_difference`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from app.jobs.params import (
    BadNets,
    BuiltIn,
    GradientSparsity,
    Plain,
    TrainingObjective,
    TrainingRecipe,
    plain_data,
)
from benchmarks.cifar import Case, Task
from benchmarks.records import Results
from workers.training.loop import Diverged

Arm = Literal["plain", "finite_difference", "exact"]

ARMS: tuple[Arm, ...] = get_args(Arm)
SEEDS = (0, 1, 2)
TUNING = 100  # the seed that rho and the methods' settings are chosen on
RHOS = (1e-4, 5e-4, 2.5e-3)
LOSS = 0.02  # of validation accuracy, that the choice of rho puts up with
NETWORKS = "sparsity_networks"
_TRAIN, _HOLDOUT, _VALIDATION, _TEST = 4_000, 2_000, 2_000, 2_000


def objective(arm: Arm, rho: float) -> TrainingObjective:
    """What the arm's networks are trained by."""
    if arm == "plain":
        return Plain()
    return GradientSparsity(name="gradient_sparsity", rho=rho, form=arm)


def task(arm: Arm, rho: float, poison: BadNets | None = None) -> Task:
    """The small task in an arm; with a backdoor, every epoch's network is kept."""
    strength = "" if arm == "plain" else f"-{rho:g}"
    share = "" if poison is None else f"-poisoned-{poison.rate:g}"
    return Task(
        name=f"sparsity-{arm}{strength}{share}",
        networks=NETWORKS if poison is None else "backdoor_networks",
        train=_TRAIN,
        holdout=_HOLDOUT,
        validation=_VALIDATION,
        test=_TEST,
        forget=_TRAIN // 10,
        architecture=BuiltIn(name="resnet8", width=1),
        recipe=TrainingRecipe(
            epochs=12,
            batch_size=32,
            learning_rate=0.1,
            precision="fp32",
            objective=objective(arm, rho),
            trajectory=poison is not None,
        ),
        poison=poison,
    )


def tried() -> dict[float | None, Mapping[str, Any] | None]:
    """The tuning seed's figures by rho, None of the plain arm; of a network that diverged they are None."""
    wanted = {_key(task("plain", 0.0)): None, **{_key(task("finite_difference", rho)): rho for rho in RHOS}}
    found: dict[float | None, Mapping[str, Any] | None] = {}
    for row in Results(NETWORKS):
        setting = row["setting"]
        key = str((setting["recipe"], setting["architecture"]))
        if (setting["name"], setting["seed"]) == ("original", TUNING) and key in wanted:
            found[wanted[key]] = row["figures"]
    return found


def chosen_rho() -> float:
    """The rho of all comparisons: see above."""
    figures = tried()
    if missing := {None, *RHOS} - set(figures):
        raise SystemExit(f"{len(missing)} networks of the choice of rho are missing: run benchmarks.sparsity")
    floor = validation(figures[None]) - LOSS
    return max((rho for rho in RHOS if validation(figures[rho]) >= floor), default=min(RHOS))


def validation(figures: Mapping[str, Any] | None) -> float:
    """The accuracy on validation rows; 0 of a network that diverged."""
    if figures is None:
        return 0.0
    counts = figures["accuracy"]["validation"]
    return float(counts["correct"] / counts["n"])


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser of where data and weights are."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cifar10"))
    parser.add_argument("--var", type=Path, default=Path("var/benchmarks"))
    return parser


def shared_arguments(description: str | None) -> argparse.ArgumentParser:
    """The same, and which seeds and arms: processes that share neither do not meet."""
    parser = arguments(description)
    parser.add_argument("--seeds", type=int, nargs="+", default=[TUNING, *SEEDS])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    return parser


def _key(of: Task) -> str:
    return str((plain_data(of.recipe), plain_data(of.architecture)))


def main() -> None:
    """Train the networks that rho is chosen by, and say which it is."""
    parser = arguments(__doc__)
    parser.add_argument("--rhos", type=float, nargs="*", choices=RHOS, default=list(RHOS))
    given = parser.parse_args()
    tasks = [task("plain", 0.0), *(task("finite_difference", rho) for rho in given.rhos)]
    for of in tasks:
        try:
            figures = Case(given.data, TUNING, given.var, task=of).original["figures"]
        except Diverged as reason:
            print(reason, flush=True)
        else:
            print(of.name, f"{validation(figures):.4f}, {figures['seconds']:.0f} s", flush=True)
    if set(tried()) == {None, *RHOS}:
        print(f"rho: {chosen_rho():g}")


if __name__ == "__main__":
    main()
