"""Backdoors after plain and after gradient-sparsity training: how they are learned, and how they are cleaned.

    .venv/bin/python -m benchmarks.sparsity --data ../shared/data/cifar10
    .venv/bin/python -m benchmarks.backdoor_cleaning --data ../shared/data/cifar10 --arms plain
    .venv/bin/python -m benchmarks.backdoor_cleaning --data ../shared/data/cifar10 --arms finite_difference

The task is that of benchmarks/sparsity.py, with its choice of rho, and 3% or 10% of the training rows carry a
trigger (docs/data.md, *Backdoors*). Every epoch's network is measured on clean test rows and on triggered
ones, so that the arms can be compared where their clean accuracies are equal. Then the poisoned rows are
forgotten, by each method with its defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from app.jobs.params import BadNets, plain_data
from benchmarks.cifar import ENVIRONMENT, Case
from benchmarks.records import Results
from benchmarks.sparsity import SEEDS, Arm, arguments, settled_rho, task
from benchmarks.tables import share
from benchmarks.trials import Trial, measure
from workers import opening
from workers.answers import Answers
from workers.audit.backdoor import backdoor
from workers.audit.outputs import Outputs
from workers.data.batches import RowSource
from workers.data.lazy import Loader
from workers.data.poison import triggered
from workers.monitor import Silent
from workers.nets.network import Network
from workers.spec import Version
from workers.training.evaluate import evaluate
from workers.training.loop import Diverged
from workers.training.surroundings import surroundings

RATES = (0.03, 0.10)
TARGET = 0
METHODS = ("finetune", "l1_sparse", "gradient_ascent", "neggrad", "salun", "scrub", "sharp_minmax")
POISONED_ARMS: tuple[Arm, ...] = ("plain", "finite_difference")
RESULTS, EPOCHS = "backdoor_cleaning", "backdoor_epochs"


def learned(case: Case, about: Mapping[str, Any]) -> dict[str, Any]:
    """How an original came by its backdoor: a reading before the first epoch and after each."""
    original = case.original
    setting = {**about, "seed": case.seed, "original": original["weights"]}
    setting["objective"] = plain_data(case.task.recipe.objective)
    rows = Results(EPOCHS)
    if (row := rows.of(setting)) is None:
        networks = [*original["figures"]["trajectory"], original["weights"]]
        row = {"setting": setting, "epochs": list(_readings(case, networks))}
        rows.add(row)
    return row


def _readings(case: Case, networks: Sequence[str]) -> Iterator[dict[str, Any]]:
    if case.poison is None:
        raise ValueError("there is no backdoor to read")
    with surroundings(ENVIRONMENT) as device:
        load_rows = Loader.of(case.spec, ENVIRONMENT, case.store, device=device, monitor=Silent())
        test = load_rows(case.test)
        stamped = triggered(test, case.poison.parameters)
        for weights in networks:
            version = Version(architecture=case.task.architecture, weights=weights)
            network = opening.stored_network(version, case.spec, case.store).to(device)
            clean, marked = (_outputs(network, rows) for rows in (test, stamped))
            correct = {"correct": int(clean.correct.sum()), "n": len(clean)}
            yield {"test": correct, **backdoor(clean, marked, case.poison.parameters.target)}


def _outputs(network: Network, rows: RowSource) -> Outputs:
    return Outputs(evaluate(network, rows).double().cpu().numpy(), rows.labels.cpu().numpy())


def _run(case: Case, about: Mapping[str, Any]) -> None:
    last = learned(case, about)["epochs"][-1]
    print(case.task.name, case.seed, f"attack success {share(last['attack_success']):.3f}", flush=True)
    known = Answers()
    for method in METHODS:
        row = measure(RESULTS, case, Trial(method, {"precision": "fp32"}, about=about), known)
        came_to = "diverged"
        if (figures := row["figures"]) is not None:
            success = share(figures["backdoor"]["unlearned"]["attack_success"])
            came_to = (
                f"attack success {success:.3f}, TA {figures['accuracy']['unlearned']['test']['rate']:.3f}"
            )
        print(case.task.name, case.seed, method, came_to, flush=True)


def main() -> None:
    """Compute the rows that are missing, of the seeds, arms and rates that are named."""
    parser = arguments(__doc__, seeds=SEEDS, arms=POISONED_ARMS)
    parser.add_argument("--rates", type=float, nargs="+", choices=RATES, default=list(RATES))
    given = parser.parse_args()
    rho = settled_rho()
    for seed, rate, arm in product(given.seeds, given.rates, given.arms):
        of = task(arm, rho, BadNets(rate=rate, target=TARGET))
        try:
            _run(Case(given.data, seed, given.var, "poisoned", of), {"arm": arm, "rate": rate})
        except Diverged as reason:
            print(reason, flush=True)


if __name__ == "__main__":
    main()
