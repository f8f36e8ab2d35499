"""Tables of backdoors after plain and after gradient-sparsity training, from the committed rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.jobs.params import plain_data
from benchmarks.backdoor_cleaning import EPOCHS, METHODS, POISONED_ARMS, RATES, RESULTS
from benchmarks.records import Results
from benchmarks.sparsity import Arm, chosen_rho, objective
from benchmarks.tables import counted, mean, percent, share, table

LEVELS = (0.30, 0.35, 0.40, 0.45, 0.50, 0.55)  # of clean accuracy, at which the arms are compared
_NETWORKS = {"original": "nothing done", "reference": "retrained without the poison"}

Rows = Mapping[Arm, list[dict[str, Any]]]
Epochs = list[dict[str, Any]]


def _rows(results: str, rate: float) -> Rows:
    """Those with the rho that is chosen, by arm."""
    if (rho := chosen_rho()) is None:
        return {}
    wanted = {arm: plain_data(objective(arm, rho)) for arm in POISONED_ARMS}
    found = [row for row in Results(results) if row["setting"]["rate"] == rate]
    return {
        arm: [row for row in found if (row["setting"]["arm"], row["setting"]["objective"]) == (arm, of)]
        for arm, of in wanted.items()
    }


def epochs(rate: float) -> str:
    """Clean accuracy, attack success and its floor before the first epoch and after each."""
    rows = _rows(EPOCHS, rate)
    last = max((len(row["epochs"]) for of in rows.values() for row in of), default=0)
    titles = " | ".join(f"TA, {arm} | attack success | floor" for arm in POISONED_ARMS)
    lines = [
        [str(epoch), *(cell for of in rows.values() for cell in _epoch([row["epochs"] for row in of], epoch))]
        for epoch in range(last)
    ]
    return table(f"epoch | {titles}", lines)


def _epoch(courses: list[Epochs], epoch: int) -> list[str]:
    readings = [course[epoch] for course in courses if epoch < len(course)]
    return [percent([share(of[part]) for of in readings]) for part in ("test", "attack_success", "floor")]


def matched(rate: float) -> str:
    """Attack success in the first epoch that reaches each level of clean accuracy, seed by seed."""
    titles = " | ".join(f"{arm}: seeds | epoch | TA | attack success" for arm in POISONED_ARMS)
    courses = {
        arm: {row["setting"]["seed"]: row["epochs"] for row in of} for arm, of in _rows(EPOCHS, rate).items()
    }
    lines = [_level(courses, level) for level in LEVELS] if all(courses.values()) and courses else []
    return table(f"clean accuracy | {titles} | difference", lines)


def _level(courses: Mapping[Arm, Mapping[int, Epochs]], level: float) -> list[str]:
    found = {
        arm: {seed: place for seed, of in by_seed.items() if (place := _reached(of, level)) is not None}
        for arm, by_seed in courses.items()
    }
    cells: list[str] = []
    success: list[dict[int, float]] = []
    for arm, places in found.items():
        readings = {seed: courses[arm][seed][place] for seed, place in sorted(places.items())}
        success.append({seed: share(of["attack_success"]) for seed, of in readings.items()})
        accuracy = percent([share(of["test"]) for of in readings.values()])
        cells += [f"{len(places)} of {len(courses[arm])}", mean(list(places.values()), 1), accuracy]
        cells.append(percent(list(success[-1].values())))
    plain, other = success
    pairs = [other[seed] - plain[seed] for seed in sorted(set(plain) & set(other))]
    return [f"{level:.0%}", *cells, percent(pairs, signed=True)]


def _reached(course: Epochs, level: float) -> int | None:
    return next((place for place, of in enumerate(course) if share(of["test"]) >= level), None)


def cleaning(rate: float) -> str:
    """What each method leaves of clean accuracy and attack success, beside doing nothing and retraining."""
    lines: list[list[str]] = []
    rows = _rows(RESULTS, rate)
    for network, name in _NETWORKS.items():
        lines += [_line(name, arm, _of(rows, arm, METHODS[0]), network) for arm in rows if rows[arm]]
    for method in METHODS:
        lines += [_line(method, arm, _of(rows, arm, method), "unlearned") for arm in rows if rows[arm]]
    return table("method | arm | runs | RA | TA | attack success | floor", lines)


def _of(rows: Rows, arm: Arm, method: str) -> list[dict[str, Any] | None]:
    return [row["figures"] for row in rows[arm] if row["setting"]["method"] == method]


def _line(name: str, arm: Arm, runs: list[dict[str, Any] | None], network: str) -> list[str]:
    done = [run for run in runs if run is not None]
    accuracy = [run["accuracy"][network] for run in done]
    backdoors = [run["backdoor"][network] for run in done]
    return [
        name,
        arm,
        counted(runs),
        *(percent([of[part]["rate"] for of in accuracy]) for part in ("retain", "test")),
        *(percent([of[part]["rate"] for of in backdoors]) for part in ("attack_success", "floor")),
    ]


def parts() -> dict[str, str]:
    """All tables by the names of their places in the page."""
    makers = {"epochs": epochs, "matched": matched, "cleaning": cleaning}
    return {f"backdoor {name}": _of_rates(make) for name, make in makers.items()}


def _of_rates(make: Callable[[float], str]) -> str:
    return "\n".join(f"**{rate:.0%} poisoned**\n\n{make(rate)}" for rate in RATES)
