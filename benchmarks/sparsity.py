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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from app.jobs.params import (
    BadNets,
    BuiltIn,
    GradientSparsity,
    Plain,
    TrainingObjective,
    TrainingRecipe,
)
from benchmarks.cifar import Case, Task
from benchmarks.records import Results
from benchmarks.tables import share
from models_store.rows import RowSet
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
    tasks: dict[float | None, Task] = {None: task("plain", 0.0)}
    tasks |= {rho: task("finite_difference", rho) for rho in RHOS}
    originals = {
        rho: Case(Path(), TUNING, Path(), task=of).setting("original", RowSet.below(of.train), TUNING)
        for rho, of in tasks.items()
    }
    found = {rho: Results(NETWORKS).of(setting) for rho, setting in originals.items()}
    return {rho: row["figures"] for rho, row in found.items() if row is not None}


def chosen_rho() -> float | None:
    """The rho of all comparisons, see above; None as long as networks are missing."""
    figures = tried()
    if set(figures) != {None, *RHOS}:
        return None
    floor = validation(figures[None]) - LOSS
    return max((rho for rho in RHOS if validation(figures[rho]) >= floor), default=min(RHOS))


def settled_rho() -> float:
    """The same, for those that cannot do without."""
    if (rho := chosen_rho()) is None:
        raise SystemExit("rho is not chosen yet: run benchmarks.sparsity")
    return rho


def validation(figures: Mapping[str, Any] | None) -> float:
    """The accuracy on validation rows; 0 of a network that diverged."""
    if figures is None:
        return 0.0
    counts = figures["accuracy"]["validation"]
    return share(counts)


def arguments(
    description: str | None, *, seeds: Sequence[int] = (), arms: Sequence[Arm] = ()
) -> argparse.ArgumentParser:
    """A parser of where data and weights are, and of which seeds and arms to compute.

    Processes that have no seed or no arm in common write no checkpoint in common.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cifar10"))
    parser.add_argument("--var", type=Path, default=Path("var/benchmarks"))
    if seeds:
        parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    if arms:
        parser.add_argument("--arms", nargs="+", choices=arms, default=list(arms))
    return parser


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
    print("rho:", chosen_rho())


if __name__ == "__main__":
    main()
