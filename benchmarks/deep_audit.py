"""The deep audit on CIFAR-10, where the truth is known: does each network get the verdict that it deserves?

    .venv/bin/python -m benchmarks.deep_audit --data ../shared/data/cifar10 --part networks
    .venv/bin/python -m benchmarks.deep_audit --data ../shared/data/cifar10
    .venv/bin/python -m benchmarks.deep_audit --data ../shared/data/cifar10 --shadows 8

The case is that of benchmarks/cifar.py: a random 5% of 10,000 photographs are to be forgotten. Four networks
retrained without them, and shadows on half of the rows if they are asked for, judge the untouched original,
four methods with their defaults, and a further retrained network. The first command trains what that takes;
several may run side by side. Each network and each verdict is a row that is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from app.jobs.params import METHODS, method_parameters, plain_data
from app.jobs.policies import Thresholds
from app.reports.verdict import judge
from benchmarks.cifar import Case, arguments, cases
from benchmarks.records import Results
from benchmarks.trials import AGAIN
from models_store.rows import RowSet
from workers import auditing, pipeline
from workers.answers import Answers
from workers.data.seeds import derived_seed
from workers.monitor import Silent
from workers.spec import ShadowSpec, Unlearned, UnlearnSpec

RESULTS: Final = "deep_audit"
REFERENCES = 4
HOLDOUT = 2_000  # of the case's held-out rows, so that shadows are no larger than they must be
CANDIDATES: Final = ("nothing", "finetune", "random_label", "neggrad", "sharp_minmax", AGAIN)
_SHOWN: Final = frozenset({"tables", "landscape", "feature_map", "customary", "accuracy_by_class"})


def holdout(case: Case) -> RowSet:
    """H: rows that no network but the shadows was trained on."""
    start = case.task.train
    return RowSet.below(start + HOLDOUT) - RowSet.below(start)


def references(case: Case) -> tuple[str, ...]:
    """Weights of networks retrained on R; the first is the case's own."""
    further = [
        case.trained(f"reference {number}", case.retain, derived_seed(case.seed, "reference", number))
        for number in range(1, REFERENCES)
    ]
    return tuple(network["weights"] for network in (case.reference, *further))


def shadows(case: Case, count: int) -> tuple[ShadowSpec, ...]:
    """Networks on random halves of the training rows and H."""
    return tuple(_shadow(case, number) for number in range(count))


def _shadow(case: Case, number: int) -> ShadowSpec:
    candidates = case.task.train + HOLDOUT
    draw = np.random.default_rng(derived_seed(case.seed, "shadow rows", number))
    rows = RowSet.of(draw.choice(candidates, candidates // 2, replace=False).tolist())
    network = case.trained(f"shadow {number}", rows, derived_seed(case.seed, "shadow", number))
    return ShadowSpec(weights=network["weights"], rows=rows)


def verdicts(case: Case, count: int) -> Iterator[dict[str, Any]]:
    """A row for each candidate, with so many shadows, computed unless it is there."""
    rows, known = Results(RESULTS), Answers()
    for name in CANDIDATES:
        setting = _setting(case, name, count)
        if (row := rows.of(setting)) is None:
            row = {"setting": setting, **_audited(case, name, count, known)}
            rows.add(row)
        yield row


def _setting(case: Case, name: str, count: int) -> dict[str, Any]:
    return {
        "candidate": name,
        "seed": case.seed,
        "forget": case.kind,
        "parameters": plain_data(method_parameters(name, {})) if name in METHODS else None,
        "references": REFERENCES,
        "shadows": count,
        "holdout": HOLDOUT,
    }


def _audited(case: Case, name: str, count: int, known: Answers) -> dict[str, Any]:
    spec = _spec(case, name, count)
    done = _done(case, name, spec)
    if METHODS.get(
        name, METHODS["retrain"]
    ).exact:  # of doing nothing, and of retraining, shadows tell nothing
        spec = replace(spec, shadows=())
    figures = auditing.audit(replace(spec, done=done), case.store, Silent(), known=known).figures
    judgement = judge(figures, Thresholds())
    kept = {part: value for part, value in figures.items() if part not in _SHOWN}
    beyond = [check.measure for check in judgement.checks if check.decisive and check.outcome == "beyond"]
    verdict = {"verdict": str(judgement.verdict), "beyond": beyond, "sentence": judgement.sentence}
    return {**verdict, "figures": _without_curve(kept)}


def _spec(case: Case, name: str, count: int) -> UnlearnSpec:
    method = name if name in METHODS else "retrain"
    networks = references(case)
    spec = case.unlearning(method, method_parameters(method, {}), networks[0])
    return replace(spec, references=networks, shadows=shadows(case, count), holdout=holdout(case))


def _done(case: Case, name: str, spec: UnlearnSpec) -> Unlearned:
    if name == AGAIN:
        figures = case.again["figures"]
        return Unlearned(weights=case.again["weights"], seconds=figures["seconds"], passes=figures["passes"])
    if name not in METHODS:
        return Unlearned(weights=spec.original.weights, seconds=0.0, passes=0)
    desk = case.desk(f"deep {name}")
    desk.forget()
    return pipeline.unlearn(spec, case.store, desk)


def _without_curve(figures: Mapping[str, Any]) -> dict[str, Any]:
    course = {name: value for name, value in figures["course"].items() if name != "curve"}
    return {**figures, "course": course}


def main() -> None:
    """Train what is lacking, or audit."""
    parser = arguments(__doc__)
    parser.set_defaults(seeds=[0])
    parser.add_argument("--part", choices=("networks", "audits"), default="audits")
    parser.add_argument("--shadows", type=int, default=0)
    given = parser.parse_args()
    for case in cases(given):
        if given.part == "networks":
            networks = *references(case), case.original["weights"], case.again["weights"]
            print(case.seed, len(set(networks)), len(shadows(case, given.shadows)))
        else:
            for row in verdicts(case, given.shadows):
                candidate, score = row["setting"]["candidate"], row["figures"]["tug_of_war"]["absolute"]
                print(candidate, row["verdict"], row["beyond"], f"ToW {score:.3f}", flush=True)


if __name__ == "__main__":
    main()
