"""Hand-made figures: what an audit would have measured, said in a line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from app.jobs.policies import Policy
from app.reports.contents import DataPart, JobPart, ModelPart, report_body
from app.reports.verdict import judge, publish_decision

Figures = dict[str, Any]
MakeFigures = Callable[..., Figures]
WITHIN = (0.0, 0.015, 0.8)  # a difference, the half-width of its 90% interval, its p


def difference_of(measured: tuple[float, float, float] | None) -> dict[str, float] | None:
    if measured is None:
        return None
    value, half, p = measured
    return {
        "difference": value,
        "low90": value - half,
        "high90": value + half,
        "low": value - 1.2 * half,
        "high": value + 1.2 * half,
        "p": p,
    }


def rate_of(correct: int, n: int) -> dict[str, Any]:
    rate = correct / n
    half = 1.96 * math.sqrt(rate * (1 - rate) / n) + 1 / n
    return {
        "correct": correct,
        "n": n,
        "rate": rate,
        "low": max(0.0, rate - half),
        "high": min(1.0, rate + half),
    }


def area_of(auc: float, half: float, p: float) -> dict[str, float]:
    return {
        "auc": auc,
        "low": auc - 1.2 * half,
        "high": auc + 1.2 * half,
        "low90": auc - half,
        "high90": auc + half,
        "p": p,
        "reversed_auc": 1 - auc,
    }


@pytest.fixture
def make_figures() -> MakeFigures:
    """Figures of 800 forget rows that pass; each keyword spoils, or takes away, one of them."""

    def make(
        *,
        reference: bool = True,
        membership: tuple[float, float, float] | None = WITHIN,
        forget: tuple[float, float, float] | None = WITHIN,
        retain: tuple[float, float, float] | None = WITHIN,
        test: tuple[float, float, float] | None = WITHIN,
        to_original: tuple[float, float, float] | None = WITHIN,
        reference_utility: tuple[float, float, float] | None = WITHIN,
        auc: tuple[float, float, float] = (0.5, 0.02, 0.9),
        original_auc: tuple[float, float, float] = (0.9, 0.02, 1e-9),
        exchangeable: bool = True,
        forget_rows: int = 800,
        holdout_rows: int = 900,
        class_distance: float | None = 0.04,
        not_finite: int = 0,
    ) -> Figures:
        networks = ("original", "unlearned", *(("reference",) if reference else ()))
        accuracy = {
            "retain": rate_of(1980, 2000),
            "forget": rate_of(560, 800),
            "test": rate_of(900, 1000),
        }
        svc = {"called_non_member": 400, **{k: v for k, v in rate_of(400, 800).items() if k != "correct"}}
        differences = {
            "original": {
                "forget": difference_of((-0.25, 0.02, 1e-9)),
                "retain": difference_of(to_original if reference else retain),
                "test": difference_of(to_original if reference else test),
                "membership": difference_of((-0.4, 0.02, 1e-9)),
            }
        }
        if reference:
            differences["reference"] = {
                "forget": difference_of(forget),
                "retain": difference_of(retain),
                "test": difference_of(test),
                "membership": difference_of(membership),
            }
        areas = {"original": original_auc, "unlearned": auc, "reference": (0.5, 0.02, 0.9)}
        utility = {name: difference_of(reference_utility) for name in ("retain", "test")}
        scores = {"absolute": 0.93, "normalised": 1.24, "signed": 0.94, "doing_nothing": 0.75}
        return {
            "sets": {"forget": forget_rows, "retain": 2000, "holdout": holdout_rows, "test": 1000},
            "not_finite": {name: not_finite if name == "unlearned" else 0 for name in networks},
            "accuracy": dict.fromkeys(networks, accuracy),
            "membership": {name: area_of(*areas[name]) for name in networks},
            "holdout": {
                "match": "subject" if exchangeable else "class",
                "n": holdout_rows,
                "class_distance": class_distance,
                "exchangeable": exchangeable,
            },
            "svc_confidence": {
                **dict.fromkeys(networks, svc),
                "direction": "share of the forget rows called non-members",
                "members": 1000,
                "non_members": 1000,
            },
            "differences": differences,
            "reference_utility": utility if reference else None,
            "tug_of_war": scores if reference else None,
            "average_gap": 0.031 if reference else None,
            "cost": {
                "seconds": {"unlearning": 3.2, "audit": 1.1, "reference": 41.0 if reference else None},
                "passes": {"unlearning": 400},
            },
        }

    return make


@pytest.fixture
def make_report(make_figures: MakeFigures) -> Callable[..., dict[str, Any]]:
    """The whole report of such figures, under the default policy."""

    def make(policy: Policy | None = None, *, method: str = "sharp_minmax", **spoilt: Any) -> dict[str, Any]:
        policy, figures = policy or Policy(), make_figures(**spoilt)
        judgement = judge(figures, policy.thresholds)
        decision = publish_decision(
            judgement,
            figures,
            publish_when=policy.publish_when,
            exact=method == "retrain",
            last_rung=False,
            prefer_exact=False,
        )
        return report_body(
            job=JobPart(
                id="0197f3c2",
                kind="unlearn",
                method=method,
                parameters={"alpha": 0.8, "rho": 0.5},
                seed=7,
                rung=0,
                started_at="2026-01-01T10:00:00Z",
                finished_at="2026-01-01T10:00:07Z",
            ),
            model=ModelPart(
                name="digits",
                version_before=1,
                version_after=2 if decision.publish else None,
                weights_before="a" * 64,
                weights_after="b" * 64,
                architecture={"name": "small_cnn", "width": 1.0},
            ),
            data=DataPart(
                dataset="scans",
                version=3,
                forget_rows=figures["sets"]["forget"],
                retain_rows=20_000,
                forget_digest="c" * 64,
                retain_digest="d" * 64,
            ),
            requests=2,
            policy=policy,
            figures=figures,
            judgement=judgement,
            decision=decision,
            environment={"threads": 2, "device": "cpu"},
            not_covered=["The holdout was small."],
        )

    return make
