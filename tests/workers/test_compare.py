"""A comparison of methods, computed for real."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from app.datasets import rows as row_sets
from app.db import transaction
from app.deletions.previews import preview
from app.deletions.schemas import NewItem, NewRequest
from app.jobs import service as jobs
from app.jobs.params import TrainingRecipe
from app.jobs.policies import Rung
from app.registry import comparisons
from app.registry import service as registry
from app.registry.schemas import NewComparison, RandomRows, Training
from app.tables import Job, JobKind, JobState, ModelVersion, Sample
from tests.fixtures.world import World
from workers import compare
from workers.methods.probe import ALPHAS

DIVERGING = {"steps": 50, "learning_rate": 10, "clip_norm": None, "readings": 1}
METHODS = [
    Rung(method="neggrad", parameters={"steps": 4, "readings": 2}),
    Rung(method="gradient_ascent", parameters=DIVERGING),
]


def _ask(version_id: uuid.UUID, **given: Any) -> uuid.UUID:
    with transaction() as session:
        version = session.get_one(ModelVersion, version_id)
        new = NewComparison(**{"forget": RandomRows(share=0.05), "methods": METHODS, "seeds": 2, **given})
        model = registry.get(session, "net")
        return comparisons.start(session, model, version, new, actor="engineer").id


def _outcome(job_id: uuid.UUID) -> dict[str, Any]:
    with transaction() as session:
        return dict(session.get_one(Job, job_id).outcome or {})


def test_methods_are_compared_on_one_reference(
    work: Callable[[JobKind], uuid.UUID], trained: uuid.UUID
) -> None:
    """It waits for the reference; every run is a row; a method that diverges is a result, not the end."""
    job_id = _ask(trained)
    work(JobKind.COMPARE)
    with transaction() as session:
        assert jobs.get(session, job_id).state is JobState.WAITING
    work(JobKind.REFERENCE)
    assert work(JobKind.COMPARE) == job_id
    with transaction() as session:
        job = jobs.get(session, job_id)
        assert (job.state, job.reason) == (JobState.DONE, "4 runs")
    outcome = _outcome(job_id)
    assert [(row["place"], row["seed"]) for row in outcome["rows"]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    neggrad, ascent = outcome["table"]
    assert (neggrad["runs"], neggrad["failures"]) == (2, 0)
    assert 0 < neggrad["tug_of_war"]["mean"] <= 1
    assert neggrad["passes"]["mean"] == 8
    assert neggrad["cost_ratio"]["mean"] > 0
    assert outcome["rows"][0]["figures"]["course"]["kept_step"] in (2, 4)
    assert (ascent["runs"], ascent["failures"], ascent["tug_of_war"]) == (2, 2, None)
    assert "finite" in outcome["rows"][1]["failure"]
    with transaction() as session:
        assert session.query(ModelVersion).count() == 1


def test_what_was_run_is_not_run_again(
    work: Callable[[JobKind], uuid.UUID], trained: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies in the middle leaves its rows to the next one."""
    job_id = _ask(trained, methods=METHODS[:1], seeds=3)
    work(JobKind.COMPARE)
    work(JobKind.REFERENCE)
    keep, kept = compare._keep, []

    def dies_after_one(*given: Any) -> None:
        keep(*given)
        kept.append(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "_keep", dies_after_one)
    with pytest.raises(KeyboardInterrupt):
        work(JobKind.COMPARE)
    monkeypatch.undo()
    first = _outcome(job_id)["rows"]
    assert len(first) == 1
    with transaction() as session:
        lost = session.get_one(Job, job_id)
        lost.lease_expires_at = lost.created_at
        session.flush()
        jobs.take_back_expired(session, 10)
    work(JobKind.COMPARE)
    rows = _outcome(job_id)["rows"]
    assert rows[0] == first[0]
    assert [row["seed"] for row in rows] == [0, 1, 2]


def test_rows_that_were_deleted_meanwhile_end_it(
    work: Callable[[JobKind], uuid.UUID], trained: uuid.UUID
) -> None:
    """No network is trained or judged on them."""
    job_id = _ask(trained)
    with transaction() as session:
        job = session.get_one(Job, job_id)
        retain = row_sets.read(session, str(job.rows_digest))
        version = session.get_one(ModelVersion, trained)
        row_sets.cover_pairs(session, version.dataset_version_id, [(next(iter(retain)), uuid.uuid4())])
    work(JobKind.COMPARE)
    with transaction() as session:
        job = jobs.get(session, job_id)
        assert job.state is JobState.FAILED
        assert "deleted meanwhile" in (job.reason or "")


@pytest.mark.parametrize("kept", [True, False])
def test_a_trajectory_that_was_kept_is_given_back(work: Callable[[JobKind], uuid.UUID], kept: bool) -> None:
    """gradient_reversal finds the training on record; without a trajectory it says what is missing."""
    with transaction() as session:
        World(session).register("digits")
    work(JobKind.INGEST)
    with transaction() as session:
        training = Training(dataset="digits", recipe=TrainingRecipe(epochs=2, trajectory=kept))
        registry.train(session, World(session).model(), training, actor="test")
    trained_by = work(JobKind.TRAIN)
    with transaction() as session:
        version_id = session.query(ModelVersion).filter_by(job_id=trained_by).one().id
    rung = Rung(method="gradient_reversal", parameters={"verify": True})
    job_id = _ask(version_id, methods=[rung], seeds=1)
    work(JobKind.COMPARE)
    work(JobKind.REFERENCE)
    work(JobKind.COMPARE)
    (row,) = _outcome(job_id)["rows"]
    if not kept:
        assert "kept no trajectory" in row["failure"]
        return
    verified = row["figures"]["course"]["verification"]
    assert 0 < verified["error"] < verified["norm"]


def test_a_probe_says_what_forgetting_would_take(
    work: Callable[[JobKind], uuid.UUID], trained: uuid.UUID
) -> None:
    """Before anything is deleted; the preview of the same rows shows it."""
    new = NewRequest(dataset="digits", items=[NewItem(sample_id=name) for name in _trained_ids(trained)])
    with transaction() as session:
        assert preview(session, new, probing="engineer").models[0].probe is not None
    job_id = work(JobKind.PROBE)
    with transaction() as session:
        assert session.get_one(Job, job_id).state is JobState.DONE
        shown = preview(session, new).models[0].probe
    assert shown is not None
    assert shown.guidance is not None
    assert shown.guidance["recommended"]["alpha"] in ALPHAS
    assert len(shown.guidance["reasons"]) == 6


def _trained_ids(version_id: uuid.UUID) -> list[str]:
    """Some samples that the version was trained on."""
    with transaction() as session:
        version = session.get_one(ModelVersion, version_id)
        rows = row_sets.read(session, str(version.rows_digest))
        query = select(Sample.sample_id).where(
            Sample.dataset_version_id == version.dataset_version_id, Sample.ordinal.in_(list(rows)[:30])
        )
        return list(session.scalars(query))
