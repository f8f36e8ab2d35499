"""Runs of several methods, summed up: means over seeds, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from scipy.stats import t

MEASURES: Final = (
    "retain_accuracy",
    "forget_accuracy",
    "test_accuracy",
    "auc",
    "centred_auc",
    "svc_confidence",
    "tug_of_war",
    "average_gap",
    "seconds",
    "passes",
    "cost_ratio",
)
BACKDOOR_MEASURES: Final = ("attack_success", "attack_floor")  # on poisoned data only


def measures(figures: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of an audit that methods are compared by; None for what could not be measured.

    `centred_auc` is 1/2 plus the difference of the unlearned network's AUC from the reference's: what an
    attack finds of F beyond what it would find anyway. `cost_ratio` is seconds over those of retraining.
    On poisoned data there are also the rates of `workers.audit.backdoor`: `attack_success`, `attack_floor`.
    """
    accuracy = figures["accuracy"]["unlearned"]
    attack = figures["membership"]["unlearned"]
    svc = figures["svc_confidence"]["unlearned"]
    difference = figures["differences"].get("reference", {}).get("membership")
    seconds = figures["cost"]["seconds"]
    tow = figures["tug_of_war"]
    ratio = seconds["unlearning"] / seconds["reference"] if seconds["reference"] else None
    return {
        "retain_accuracy": accuracy["retain"]["rate"],
        "forget_accuracy": accuracy["forget"]["rate"],
        "test_accuracy": accuracy["test"]["rate"],
        "auc": attack["auc"] if attack else None,
        "centred_auc": 0.5 + difference["difference"] if difference else None,
        "svc_confidence": svc["rate"] if svc else None,
        "tug_of_war": tow["absolute"] if tow else None,
        "average_gap": figures["average_gap"],
        "seconds": seconds["unlearning"],
        "passes": figures["cost"]["passes"]["unlearning"],
        "cost_ratio": ratio,
        **_of_backdoor(figures),
    }


def _of_backdoor(figures: Mapping[str, Any]) -> dict[str, float | None]:
    if "backdoor" not in figures:
        return {}
    found = figures["backdoor"]["unlearned"]
    return {"attack_success": found["attack_success"]["rate"], "attack_floor": found["floor"]["rate"]}


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each method, by its place in the list: how many runs, and mean and 95% t-interval of each measure.

    A run that failed is counted, and its measures are left out. With one value there is no interval.
    """
    places = sorted({row["place"] for row in rows})
    return [_of_method([row for row in rows if row["place"] == place]) for place in places]


def _of_method(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    done = [row for row in rows if row["failure"] is None]
    poisoned = [name for name in BACKDOOR_MEASURES if any(name in row["measures"] for row in done)]
    return {
        "place": rows[0]["place"],
        "method": rows[0]["method"],
        "runs": len(rows),
        "failures": len(rows) - len(done),
        **{name: interval([row["measures"][name] for row in done]) for name in (*MEASURES, *poisoned)},
    }


def interval(values: Sequence[float | None]) -> dict[str, float | int | None] | None:
    """Mean and 95% t-interval of what was measured: {"n", "mean", "low", "high"}; None of nothing."""
    known = np.array([value for value in values if value is not None], dtype=float)
    if not len(known):
        return None
    mean = float(known.mean())
    if len(known) == 1:
        return {"n": 1, "mean": mean, "low": None, "high": None}
    half = float(t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return {"n": len(known), "mean": mean, "low": mean - half, "high": mean + half}
