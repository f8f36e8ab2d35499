"""The rows of benchmarks/sparsity_methods.py by arm, method and setting, and which setting is taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from app.jobs.params import plain_data
from benchmarks.cifar import ForgetSet
from benchmarks.records import Results
from benchmarks.sparsity import ARMS, TUNING, Arm, chosen_rho, objective
from benchmarks.sparsity_methods import GRIDS, KINDS, RESULTS, trials
from benchmarks.tables import counted
from benchmarks.trials import AGAIN
from workers.audit.tug_of_war import Accuracies, average_gap

Choice = Callable[[str], int]


@dataclass(frozen=True)
class Runs:
    """One arm's runs on one kind of forget set.

    Attributes:
        arm: Which one.
        of: Figures by method, number of the setting, and seed; None where a run diverged.
        plain: The figures, by seed, of runs whose reference was retrained plainly.
    """

    arm: Arm
    of: Mapping[tuple[str, int], Mapping[int, Mapping[str, Any] | None]]
    plain: Mapping[int, Mapping[str, Any]]

    def figures(self, method: str, number: int = 0) -> dict[int, Mapping[str, Any]]:
        """By seed, the tuning seed left out, of the runs that did not diverge."""
        runs = self.of.get((method, number), {})
        return {seed: run for seed, run in sorted(runs.items()) if seed != TUNING and run is not None}

    def counted(self, method: str, number: int) -> str:
        """How many runs there are, and how many of them diverged."""
        runs = [run for seed, run in self.of.get((method, number), {}).items() if seed != TUNING]
        return counted(runs)

    def gaps(self, method: str, number: int = 0, network: str = "unlearned") -> dict[int, float | None]:
        """Avg. Gap by seed, against the arm's own retraining."""
        return {
            seed: average_gap(rates(run, network), rates(run, "reference"))
            for seed, run in self.figures(method, number).items()
        }

    def plain_gaps(self, method: str, number: int = 0, network: str = "unlearned") -> dict[int, float | None]:
        """The same against plain retraining, of the seeds where that is there."""
        return {
            seed: average_gap(rates(run, network), rates(self.plain[seed], "reference"))
            for seed, run in self.figures(method, number).items()
            if seed in self.plain
        }

    def tuned(self, method: str, number: int) -> float:
        """Avg. Gap on the tuning seed; endless if the run diverged or is missing."""
        run = self.of.get((method, number), {}).get(TUNING)
        return float("inf") if run is None or run["average_gap"] is None else float(run["average_gap"])

    def utility(self, method: str, number: int) -> float | None:
        """TA, the mean over seeds."""
        found = [rates(run, "unlearned").test for run in self.figures(method, number).values()]
        return fmean(found) if found else None


def collected() -> dict[ForgetSet, dict[Arm, Runs]]:
    """All runs with the rho that is chosen and the settings that the grids have."""
    if (rho := chosen_rho()) is None:
        return {}
    found: dict[tuple[str, Arm], dict[tuple[str, int], dict[int, Any]]] = {}
    keys = {(arm, _text(plain_data(objective(arm, rho)))): _places(arm) for arm in ARMS}
    for row in Results(RESULTS):
        setting = row["setting"]
        places = keys.get((setting["arm"], _text(setting["objective"])), {})
        place = places.get((setting["method"], _text(setting["parameters"])))
        if place is not None:
            runs = found.setdefault((setting["forget"], setting["arm"]), {}).setdefault(place, {})
            runs[setting["seed"]] = row["figures"]
    return {kind: _arms(kind, found) for kind in KINDS}


def _arms(kind: ForgetSet, found: Mapping[tuple[str, Arm], Mapping[Any, Any]]) -> dict[Arm, Runs]:
    plain = {
        seed: run
        for runs in found.get((kind, "plain"), {}).values()
        for seed, run in runs.items()
        if run is not None
    }
    return {arm: Runs(arm, found[kind, arm], plain) for arm in ARMS if (kind, arm) in found}


def _places(arm: Arm) -> dict[tuple[str, str], tuple[str, int]]:
    """Which setting of which method has these parameters."""
    places = {(AGAIN, "{}"): (AGAIN, 0)}
    for trial in trials(arm):
        number = GRIDS[trial.method].settings.index(trial.tried)
        places[trial.method, _text(plain_data(trial.parameters))] = (trial.method, number)
    return places


def _text(data: object) -> str:
    return json.dumps(data, sort_keys=True)


def rates(figures: Mapping[str, Any], network: str) -> Accuracies:
    """An audit's shares of one network, as they are compared."""
    svc = figures["svc_confidence"][network]
    shares = {part: counts["rate"] for part, counts in figures["accuracy"][network].items()}
    return Accuracies(**shares, called_non_member=svc and svc["rate"])


def selected(arms: Mapping[Arm, Runs], arm: Arm) -> Choice:
    """The setting with the least Avg. Gap on the tuning seed; `exact` takes that of `finite_difference`."""
    runs = arms.get("finite_difference" if arm == "exact" else arm)

    def choose(method: str) -> int:
        numbers = range(len(GRIDS[method].settings))
        return 0 if runs is None else min(numbers, key=lambda number: runs.tuned(method, number))

    return choose


def matched(arms: Mapping[Arm, Runs], arm: Arm) -> Choice:
    """The setting whose TA is nearest to that of the plain arm's selected setting."""

    def choose(method: str) -> int:
        aim = arms["plain"].utility(method, selected(arms, "plain")(method))

        def distance(number: int) -> float:
            own = arms[arm].utility(method, number)
            return float("inf") if own is None or aim is None else abs(own - aim)

        return min(range(len(GRIDS[method].settings)), key=distance)

    return choose
