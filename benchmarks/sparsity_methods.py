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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from app.jobs.params import MethodParameters, method_parameters, plain_data
from benchmarks.cifar import Case, ForgetSet
from benchmarks.records import Results
from benchmarks.sparsity import TUNING, Arm, chosen_rho, shared_arguments, task
from workers import pipeline
from workers.methods.curvature import NoStep
from workers.monitor import Silent
from workers.spec import Unlearned, UnlearnSpec
from workers.training.loop import Diverged

KINDS: tuple[ForgetSet, ...] = ("random", "class")
RESULTS = "sparsity_methods"
AGAIN = "retrain"  # the method that stands for a second retrained network
_EXACT_SEEDS = (0,)
_STEPS = {"precision": "fp32", "readings": 0}
_READING_R = {**_STEPS, "retain_batch_size": 32}
_KEPT = (
    "sets",
    "accuracy",
    "membership",
    "svc_confidence",
    "differences",
    "tug_of_war",
    "average_gap",
    "cost",
)


@dataclass(frozen=True)
class Grid:
    """What a method is told: in every setting, and in each of the three that are compared."""

    fixed: Mapping[str, Any]
    settings: tuple[Mapping[str, Any], ...]


GRIDS: Mapping[str, Grid] = {
    "finetune": Grid(
        {**_READING_R, "steps": 130}, tuple({"learning_rate": rate} for rate in (0.03, 0.1, 0.3))
    ),
    "gradient_ascent": Grid(
        {**_STEPS, "steps": 40, "forget_batch_size": 32},
        tuple({"learning_rate": rate} for rate in (1e-3, 5e-3, 2e-2)),
    ),
    "influence": Grid(
        {"retain_sample": 512, "iterations": 12},
        tuple({"damping": damping} for damping in (1.0, 4.0, 16.0)),
    ),
    "fisher_forgetting": Grid(
        {"retain_sample": 512}, tuple({"noise": noise} for noise in (1e-7, 1e-6, 1e-5))
    ),
    "l1_sparse": Grid(
        {**_READING_R, "steps": 130, "learning_rate": 0.1},
        tuple({"l1": weight} for weight in (1e-4, 5e-4, 2e-3)),
    ),
    "sharp_minmax": Grid(
        {**_READING_R, "steps": 60},
        tuple({"alpha": alpha} for alpha in (0.3, 0.5, 0.7)),
    ),
}


def facts(case: Case, arm: Arm, method: str, parameters: MethodParameters) -> dict[str, Any]:
    """What a row is found by."""
    return {
        "arm": arm,
        "forget": case.kind,
        "seed": case.seed,
        "method": method,
        "parameters": plain_data(parameters),
        "original": case.original["weights"],
        "reference": case.reference["weights"],
        "objective": plain_data(case.task.recipe.objective),
    }


def measure(case: Case, arm: Arm, method: str, number: int, known: pipeline.Known) -> dict[str, Any]:
    """A setting of a method on a case, audited; the row says so where it diverged."""
    grid = GRIDS[method]
    parameters = method_parameters(method, {**grid.fixed, **grid.settings[number]})
    setting = facts(case, arm, method, parameters)
    results = Results(RESULTS)
    if (row := results.of(setting)) is None:
        row = {
            "setting": setting,
            "tried": dict(grid.settings[number]),
            **_ran(case, method, parameters, known),
        }
        results.add(row)
    return row


def _ran(case: Case, method: str, parameters: MethodParameters, known: pipeline.Known) -> dict[str, Any]:
    spec = case.unlearning(method, parameters, case.reference["weights"])
    desk = case.desk(method)
    desk.forget()
    try:
        done = pipeline.unlearn(spec, case.store, desk)
    except (Diverged, NoStep) as fault:
        return {"figures": None, "fault": f"{type(fault).__name__}: {fault}"}
    return {"figures": _audited(case, replace(spec, done=done), known), "fault": None}


def _audited(case: Case, spec: UnlearnSpec, known: pipeline.Known) -> dict[str, Any]:
    figures = pipeline.audit(spec, case.store, Silent(), known=known).figures
    course = {name: value for name, value in figures["course"].items() if name != "curve"}
    return {name: figures[name] for name in _KEPT} | {"course": course}


def floor(case: Case, arm: Arm, known: pipeline.Known) -> dict[str, Any]:
    """A second retrained network in the place of an unlearned one."""
    parameters = method_parameters(AGAIN, {})
    setting = facts(case, arm, AGAIN, parameters)
    results = Results(RESULTS)
    if (row := results.of(setting)) is None:
        again = case.again
        done = Unlearned(
            weights=again["weights"], seconds=again["figures"]["seconds"], passes=again["figures"]["passes"]
        )
        spec = replace(case.unlearning(AGAIN, parameters, case.reference["weights"]), done=done)
        row = {"setting": setting, "tried": {}, "figures": _audited(case, spec, known), "fault": None}
        results.add(row)
    return row


def _run(case: Case, arm: Arm) -> None:
    known: pipeline.Known = {}
    if case.seed != TUNING:
        _show(case, arm, floor(case, arm, known))
    for method, grid in GRIDS.items():
        for number in range(len(grid.settings)):
            _show(case, arm, measure(case, arm, method, number, known))


def _show(case: Case, arm: Arm, row: Mapping[str, Any]) -> None:
    figures, method = row["figures"], row["setting"]["method"]
    came_to = row["fault"] if figures is None else f"Avg. Gap {100 * figures['average_gap']:.2f}"
    print(case.kind, case.seed, arm, method, dict(row["tried"]), came_to, flush=True)


def main() -> None:
    """Compute the rows that are missing, of the seeds and arms that are named."""
    given = shared_arguments(__doc__).parse_args()
    rho = chosen_rho()
    for seed, arm, kind in product(given.seeds, given.arms, KINDS):
        if arm == "exact" and seed not in _EXACT_SEEDS:
            continue
        try:
            _run(Case(given.data, seed, given.var, kind, task(arm, rho)), arm)
        except Diverged as reason:
            print(kind, seed, arm, reason, flush=True)


if __name__ == "__main__":
    main()
