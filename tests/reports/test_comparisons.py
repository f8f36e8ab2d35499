"""Looking at what a comparison of methods has come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.errors import NotFound
from app.jobs.policies import Rung
from app.registry import comparisons as asking
from app.registry import service as registry
from app.registry.schemas import NewComparison, RandomRows
from app.reports import comparisons
from app.tables import Job, JobKind
from tests.fixtures.world import World
from workers.audit.comparison import MEASURES


@pytest.fixture
def job(world: World) -> Job:
    """A comparison of two methods with two seeds that waits."""
    world.dataset()
    version = world.trained()
    methods = [Rung(method="neggrad"), Rung(method="finetune")]
    new = NewComparison(forget=RandomRows(share=0.25), methods=methods, seeds=2)
    return asking.start(world.session, registry.get(world.session, "net"), version, new, actor="engineer")


def _row(place: int, seed: int, figures: dict[str, Any] | None) -> dict[str, Any]:
    return {"place": place, "seed": seed, "figures": figures, "failure": None if figures else "diverged"}


def test_a_job_of_another_kind_is_no_comparison(world: World, job: Job) -> None:
    """Nor is one that is not there."""
    training = world.session.query(Job).filter_by(kind=JobKind.TRAIN).one()
    for other in (training, None):
        with pytest.raises(NotFound):
            comparisons.view(world.session, other)
    assert comparisons.view(world.session, job).rows == []


def test_verdicts_are_derived_from_the_figures(
    world: World, job: Job, make_figures: Callable[..., dict[str, Any]]
) -> None:
    """Under the model's thresholds; a run that failed has none."""
    figures = make_figures()
    entries = [{"place": place, "method": "x", "runs": 2, "failures": place} for place in (0, 1)]
    job.outcome = {
        "rows": [_row(0, 0, figures), _row(1, 0, figures), _row(0, 1, figures), _row(1, 1, None)],
        "table": entries,
    }
    shown = comparisons.view(world.session, job)
    verdict = shown.rows[0]["verdict"]
    assert verdict in {"pass", "fail", "inconclusive", "not_valid"}
    assert [row["verdict"] for row in shown.rows] == [verdict, verdict, verdict, None]
    assert [entry["verdicts"] for entry in shown.table] == [{verdict: 2}, {verdict: 1}]


def test_the_table_says_what_is_there_and_what_is_not(world: World, job: Job) -> None:
    """Means with half their intervals; a dash for what could not be measured; failures."""
    measured: dict[str, Any] = {name: {"n": 2, "mean": 0.5, "low": 0.4, "high": 0.6} for name in MEASURES}
    measured |= {"average_gap": None, "tug_of_war": {"n": 1, "mean": 0.25, "low": None, "high": None}}
    job.outcome = {
        "rows": [_row(0, 0, None)],
        "table": [{"place": 0, "method": "neggrad", "runs": 3, "failures": 1} | measured],
    }
    lines = comparisons.table(comparisons.view(world.session, job)).splitlines()
    assert lines[0] == "net version 1: queued, 1 of 4 runs"
    assert lines[2].split()[:6] == ["0", "neggrad", "3", "50.00", "+-", "10.00"]
    assert lines[2].endswith("1 failed")
    assert lines[2].split()[-6:-3] == ["-", "0.500", "+-"]
    assert " 0.250 " in lines[2]


def test_backdoors_have_their_columns_where_there_are_any(world: World, job: Job) -> None:
    """A method all of whose runs failed has dashes there."""
    measured: dict[str, Any] = {name: {"n": 1, "mean": 0.5, "low": None, "high": None} for name in MEASURES}
    done = {"place": 0, "method": "neggrad", "runs": 1, "failures": 0} | measured
    job.outcome = {"rows": [], "table": [done]}
    assert "ASR" not in comparisons.table(comparisons.view(world.session, job))
    found = {"attack_success": {"n": 1, "mean": 0.031, "low": None, "high": None}, "attack_floor": None}
    failed = dict.fromkeys(MEASURES) | {"place": 1, "method": "finetune", "runs": 1, "failures": 1}
    job.outcome = {"rows": [], "table": [done | found, failed]}
    lines = comparisons.table(comparisons.view(world.session, job)).splitlines()
    assert lines[1].split()[-5:-1] == ["ASR", "%", "floor", "%"]
    assert lines[2].split()[-2:] == ["3.10", "-"]
    assert lines[3].split()[-4:-2] == ["-", "-"]
    assert lines[-1].startswith("ASR: ")
