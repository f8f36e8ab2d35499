"""Every approximate method on the CIFAR-10 cases, at equal shares of what retraining costs.

    .venv/bin/python -m benchmarks.cifar_methods search
    .venv/bin/python -m benchmarks.cifar_methods run --seeds 0 1 2 3 4

`search` tries the same number of settings for each method, on a case of its own: some from wide ranges, some
around the best of these, and the method's defaults. They are scored on validation rows, as the methods score
themselves: no retrained network is looked at. `run` takes each method's best setting to the other cases and
audits what comes out against the retrained network; so do the ablations, `sharp_minmax` with one thing
changed. Each result is a row that is committed; what is there is not computed again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from app.jobs.params import MethodParameters, NegGrad, SharpMinMax, Steps, method_parameters, plain_data
from app.jobs.policies import Thresholds
from app.reports.verdict import judge
from benchmarks.cifar import ARCHITECTURE, ENVIRONMENT, RECIPE, RETRAIN_PASSES, Case, arguments, cases
from benchmarks.records import Results
from workers import auditing, pipeline
from workers.answers import Answers
from workers.data.seeds import derived_seed
from workers.monitor import Silent
from workers.spec import Learned, Unlearned, UnlearnSpec, Version
from workers.training.loop import Diverged

BUDGETS = {0.05: 3, 0.10: 4, 0.15: 6, 0.30: 10}  # share of retraining's cost: readings of the method's own
SEARCH_CASE, SEARCH_BUDGET = 100, 0.10
WIDE, NEAR = 10, 3  # draws from the whole ranges, then draws around the best of them
TRIALS = WIDE + NEAR + 1  # and the defaults
_ROWS = RECIPE.batch_size  # a pass is one over so many rows; fewer cost less
_READING = 1200 / _ROWS / 3  # a reading is forward passes alone over 1,200 rows
_UNSEEN_ROWS = 1000  # that ceilings are taken from
_FULL_PRECISION = 2  # the mask is computed in it, at about twice the cost

_PUBLISHED = {"ceiling": "none", "keeps": "rest", "ascent": "gradient"}

Draw = Callable[[np.random.Generator], dict[str, Any]]


def _log(draw: np.random.Generator, low: float, high: float) -> float:
    return float(f"{math.exp(draw.uniform(math.log(low), math.log(high))):.2g}")


def _between(draw: np.random.Generator, low: float, high: float) -> float:
    return round(float(draw.uniform(low, high)), 2)


def _one_of(draw: np.random.Generator, choices: Sequence[Any]) -> Any:
    return choices[int(draw.integers(len(choices)))]


def _sharp(draw: np.random.Generator) -> dict[str, Any]:
    adaptive, rho = _one_of(draw, [(False, 0.05), (False, 0.1), (True, 0.5), (True, 1.0)])
    return {
        "learning_rate": _log(draw, 3e-3, 5e-2),
        "alpha": _between(draw, 0.5, 0.95),
        "adaptive": adaptive,
        "rho": rho,
        "mask_fraction": _one_of(draw, [0.05, 0.1, 0.3, 0.5]),
        "forget_batch_size": _one_of(draw, [16, 32, 64]),
    }


def _bounded(draw: np.random.Generator) -> dict[str, Any]:
    return {
        "learning_rate": _log(draw, 1e-2, 5e-2),
        "alpha": _between(draw, 0.4, 0.8),
        "rho": _one_of(draw, [0.0, 0.1, 0.2, 0.5]),
        "mask_fraction": _one_of(draw, [0.1, 0.3, 0.5]),
        "forget_batch_size": _one_of(draw, [16, 32, 64]),
    }


@dataclass(frozen=True)
class Entry:
    """A method as it is compared: what is fixed, what is drawn, and what a step costs in passes."""

    method: str
    draw: Draw
    fixed: Mapping[str, Any]
    passes: Callable[[Any], float]
    has_mask: bool = False


def _two(parameters: Any) -> float:
    return 1 + float(parameters.forget_batch_size) / _ROWS


ENTRIES: Mapping[str, Entry] = {
    "finetune": Entry("finetune", lambda d: {"learning_rate": _log(d, 0.02, 0.3)}, {}, lambda _: 1),
    "l1_sparse": Entry(
        "l1_sparse",
        lambda d: {"learning_rate": _log(d, 0.02, 0.2), "l1": _log(d, 1e-5, 1e-3)},
        {},
        lambda _: 1,
    ),
    "gradient_ascent": Entry(
        "gradient_ascent",
        lambda d: {"learning_rate": _log(d, 3e-5, 3e-3), "forget_batch_size": _one_of(d, [16, 32, 64])},
        {},
        lambda p: p.forget_batch_size / _ROWS,
    ),
    "neggrad": Entry(
        "neggrad",
        lambda d: {"learning_rate": _log(d, 3e-3, 5e-2), "alpha": _between(d, 0.5, 0.95)},
        {"ceiling": "none", "forget_batch_size": 64},
        _two,
    ),
    "neggrad_bounded": Entry(
        "neggrad",
        lambda d: {
            "learning_rate": _log(d, 1e-2, 5e-2),
            "alpha": _between(d, 0.4, 0.8),
            "forget_batch_size": _one_of(d, [16, 32, 64]),
        },
        {"ceiling": "unseen"},
        _two,
    ),
    "neggrad_sam": Entry(
        "neggrad",
        lambda d: {
            "learning_rate": _log(d, 3e-3, 5e-2),
            "alpha": _between(d, 0.5, 0.95),
            "objective": {"name": "sam", "rho": _one_of(d, [0.05, 0.1])},
        },
        {"sharpness_on": "retain", "ceiling": "none", "forget_batch_size": 64},
        lambda p: 2 + p.forget_batch_size / _ROWS,
    ),
    "random_label": Entry(
        "random_label",
        lambda d: {"learning_rate": _log(d, 3e-3, 5e-2), "forget_weight": _between(d, 0.2, 1.0)},
        {},
        _two,
    ),
    "salun": Entry(
        "salun",
        lambda d: {
            "learning_rate": _log(d, 3e-3, 5e-2),
            "forget_weight": _between(d, 0.2, 1.0),
            "mask_fraction": _one_of(d, [0.3, 0.5, 0.7]),
        },
        {},
        _two,
        has_mask=True,
    ),
    "scrub": Entry(
        "scrub",
        lambda d: {
            "learning_rate": _log(d, 1e-3, 2e-2),
            "teacher_weight": _log(d, 0.01, 1.0),
            "rounds": (rounds := _one_of(d, [2, 4, 8])),
            "ascent_rounds": rounds,
        },
        {},
        lambda p: 4 / 3 * (1 + p.rounds * 8 / p.steps),
    ),
    "sharp_minmax_as_published": Entry(
        "sharp_minmax", _sharp, _PUBLISHED, lambda p: 2 * _two(p), has_mask=True
    ),
    "sharp_minmax_as_released": Entry(
        "sharp_minmax", _sharp, {**_PUBLISHED, "as_released": True}, lambda p: 2 * _two(p), has_mask=True
    ),
    "sharp_minmax": Entry(
        "sharp_minmax",
        _bounded,
        {"ceiling": "unseen", "keeps": "all", "ascent": "momentum", "adaptive": True},
        lambda p: _two(p) * (1 if p.ascent == "momentum" else 2),
        has_mask=True,
    ),
}

_ABLATED: Mapping[str, Mapping[str, Any]] = {
    "no_sharpness": {"rho": 0.0},
    "sharper": {"rho": 0.5},
    "fewer_forget": {"mask_fraction": 0.1},
    "more_forget": {"mask_fraction": 0.9},
    "no_ceiling": {"ceiling": "none"},
    "rest_keeps": {"keeps": "rest"},
    "by_gradient": {"ascent": "gradient"},
}
ABLATIONS: Mapping[str, Entry] = {
    name: replace(ENTRIES["sharp_minmax"], fixed={**ENTRIES["sharp_minmax"].fixed, **changed})
    for name, changed in _ABLATED.items()
}


def budgeted(entry: Entry, given: Mapping[str, Any], budget: float, forget_rows: int) -> MethodParameters:
    """The method's parameters with as many steps as the budget pays for, mask and readings included."""
    readings = BUDGETS[budget]
    chosen = method_parameters(
        entry.method,
        {**given, **entry.fixed, "precision": RECIPE.precision, "readings": readings, "rebound_steps": 0},
    )
    if not isinstance(chosen, Steps):
        raise TypeError(f"{entry.method} takes no steps")
    left = budget * RETRAIN_PASSES - readings * _READING
    if isinstance(chosen, NegGrad | SharpMinMax) and chosen.ceiling == "unseen":
        left -= (forget_rows + _UNSEEN_ROWS) / _ROWS / 3
    if entry.has_mask:
        left -= _FULL_PRECISION * forget_rows / _ROWS
    return replace(chosen, steps=max(readings, int(left / entry.passes(chosen))))


def spec_of(case: Case, entry: Entry, parameters: MethodParameters, reference: str | None) -> UnlearnSpec:
    return UnlearnSpec(
        data=case.spec,
        original=Version(architecture=ARCHITECTURE, weights=case.original["weights"]),
        recipe=RECIPE,
        method=entry.method,
        parameters=parameters,
        forget=case.forget,
        retain=case.retain,
        holdout=case.holdout,
        holdout_match="class",
        test=case.test,
        validation=case.validation,
        learned=Learned(blob=case.original["figures"]["memorisation"]["proxy"], rows=case.train),
        seed=derived_seed(case.seed, "unlearn"),
        references=() if reference is None else (reference,),
        environment=ENVIRONMENT,
    )


def _facts(case: Case, name: str, budget: float, parameters: MethodParameters) -> dict[str, Any]:
    return {
        "entry": name,
        "budget": budget,
        "seed": case.seed,
        "original": case.original["weights"],
        "parameters": plain_data(parameters),
    }


def _unlearned(case: Case, name: str, spec: UnlearnSpec) -> Unlearned:
    desk = case.desk(name)
    desk.forget()
    return pipeline.unlearn(spec, case.store, desk)


def trial(case: Case, name: str, number: int) -> dict[str, Any]:
    """One setting of the search: its score on validation rows at the step that it kept."""
    drawn = setting(name, number)
    parameters = budgeted(ENTRIES[name], drawn, SEARCH_BUDGET, len(case.forget))
    facts = _facts(case, name, SEARCH_BUDGET, parameters)
    results = Results("cifar_search")
    if (row := results.of(facts)) is None:
        row = {"setting": facts, "drawn": drawn, **_tried(case, name, parameters)}
        results.add(row)
    return row


def _tried(case: Case, name: str, parameters: MethodParameters) -> dict[str, Any]:
    try:
        done = _unlearned(case, name, spec_of(case, ENTRIES[name], parameters, None))
    except Diverged:
        return {"figures": {"kept": {"score": 0.0}, "diverged": True}, "seconds": None}
    kept = next(r for r in done.course["readings"] if r["step"] == done.course["kept_step"])
    figures = {"kept": kept} | {name: done.course[name] for name in ("steps", "target", "diverged")}
    return {"figures": figures, "seconds": done.seconds}


def setting(name: str, number: int) -> dict[str, Any]:
    """What is tried as a method's trial of this number."""
    draw = np.random.default_rng(derived_seed(number, "trial", name))
    if number < WIDE:
        return ENTRIES[name].draw(draw)
    return _near(draw, best(name, WIDE)) if number < WIDE + NEAR else {}


def _near(draw: np.random.Generator, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers within a factor of 1.5 of those given, alpha by its distance from 1; choices as they are."""

    def moved(value: float) -> float:
        return float(f"{value * math.exp(draw.uniform(-math.log(1.5), math.log(1.5))):.2g}")

    numbers = {name: value for name, value in drawn.items() if isinstance(value, float)}
    changed = {name: moved(value) for name, value in numbers.items() if name != "alpha"}
    if "alpha" in numbers:
        changed["alpha"] = round(1 - moved(1 - numbers["alpha"]), 3)
    return {**drawn, **changed}


def best(name: str, trials: int = TRIALS) -> dict[str, Any]:
    """The setting that scored best in the method's first trials."""
    rows = {_key(row["drawn"]): row for row in Results("cifar_search") if row["setting"]["entry"] == name}
    tried = [_key(setting(name, number)) for number in range(trials)]
    if missing := sum(key not in rows for key in tried):
        raise SystemExit(f"{name} lacks {missing} of {trials} trials: run the search first")
    chosen: dict[str, Any] = max((rows[key] for key in tried), key=_score)["drawn"]
    return chosen


def _key(drawn: Mapping[str, Any]) -> str:
    return json.dumps(drawn, sort_keys=True)


def _score(row: Mapping[str, Any]) -> float:
    return float(row["figures"]["kept"]["score"])


def measure(case: Case, name: str, budget: float, known: Answers) -> dict[str, Any]:
    """The method's best setting on a case, audited against the retrained network; None if it diverged."""
    entry = ENTRIES[name] if name in ENTRIES else ABLATIONS[name]
    settled = best(name if name in ENTRIES else "sharp_minmax")
    parameters = budgeted(entry, settled, budget, len(case.forget))
    facts = _facts(case, name, budget, parameters)
    facts |= {"forget": case.kind, "reference": case.reference["weights"]}
    results = Results("cifar_methods")
    if (row := results.of(facts)) is None:
        spec = spec_of(case, entry, parameters, case.reference["weights"])
        row = {"setting": facts, "figures": _audited(case, name, spec, known)}
        results.add(row)
    return row


def _audited(case: Case, name: str, spec: UnlearnSpec, known: Answers) -> dict[str, Any] | None:
    try:
        done = _unlearned(case, name, spec)
    except Diverged:
        return None
    figures = dict(auditing.audit(replace(spec, done=done), case.store, Silent(), known=known).figures)
    return figures | {"verdict": str(judge(figures, Thresholds()).verdict)}


def main() -> None:
    """Search, or run."""
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["search", "run"])
    parser.add_argument("--methods", nargs="+", choices=[*ENTRIES, *ABLATIONS], default=list(ENTRIES))
    parser.add_argument("--budgets", nargs="+", type=float, choices=list(BUDGETS), default=list(BUDGETS))
    given = parser.parse_args()
    if given.what == "search":
        case = Case(given.data, SEARCH_CASE, given.var)
        for number, name in product(range(TRIALS), given.methods):
            if name in ENTRIES:
                row = trial(case, name, number)
                print(name, row["drawn"], f"{row['figures']['kept']['score']:.3f}", flush=True)
    else:
        for case in cases(given):
            known = Answers()
            for budget, name in product(given.budgets, given.methods):
                figures = measure(case, name, budget, known)["figures"]
                came_to = "diverged"
                if figures is not None:
                    came_to = f"{figures['tug_of_war']['absolute']:.3f} {figures['verdict']}"
                print(case.kind, case.seed, budget, name, came_to, flush=True)


if __name__ == "__main__":
    main()
