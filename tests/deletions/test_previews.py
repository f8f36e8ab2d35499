"""What a request would do, said without doing it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from app.datasets import rows as row_sets
from app.deletions.previews import preview
from app.deletions.schemas import NewItem, NewRequest
from app.errors import Invalid
from app.tables import Job, JobKind
from tests.fixtures.world import World, invented_rows


def _request(*rows: int, **more: str) -> NewRequest:
    items = [NewItem(sample_id=f"faces-{row:02d}") for row in rows]
    return NewRequest(dataset="faces", items=[*items, *(NewItem(subject=name) for name in more.values())])


def test_nothing_is_done(world: World) -> None:
    """No table has a row more than before."""
    world.dataset()
    world.trained()
    before = world.counts()
    preview(world.session, _request(1, 2))
    assert world.counts() == before


def test_models_concerned_are_named_with_their_rows(world: World) -> None:
    """Those in use that were trained on some of the rows; held-out rows concern nobody."""
    world.dataset()
    world.trained("net")
    world.model("idle")
    found = preview(world.session, _request(1, 2, 45))
    (model,) = found.models
    assert (model.model, model.versions, model.rows_to_forget, model.rows) == ("net", [1], 2, 40)
    assert (found.items.total, found.items.matched, found.items.no_match) == (3, 3, 0)


def test_what_is_not_found_is_named_by_position(world: World) -> None:
    """As long as something is found; otherwise the request is refused as it would be."""
    world.dataset()
    assert preview(world.session, _request(1, 99, 2)).unmatched == [1]
    with pytest.raises(Invalid):
        preview(world.session, _request(99))


def test_the_cost_is_that_of_earlier_jobs(world: World) -> None:
    """The median of finished jobs; for retraining, those that trained the model count as well."""
    world.dataset()
    version = world.trained("net")
    job = world.session.scalars(select(Job).filter_by(model_id=version.model_id, kind=JobKind.TRAIN)).one()
    assert job.finished_at is not None
    job.started_at = job.finished_at - timedelta(seconds=90)
    world.session.flush()
    (model,) = preview(world.session, _request(1)).models
    assert [(rung.method, rung.exact, rung.seconds, rung.jobs) for rung in model.ladder] == [
        ("neggrad", False, None, 0),
        ("retrain", True, pytest.approx(90), 1),
    ]


@pytest.mark.parametrize(("policy", "asked", "expected"), [(0, 0, 0), (3, 0, 3), (3, 8, 8)])
def test_the_audits_budget_is_the_larger_one(world: World, policy: int, asked: int, expected: int) -> None:
    """The policy's or the request's; nothing is spent where nothing can be retrained."""
    world.dataset()
    version = world.trained("net", audit_budget=policy)
    new = _request(1).model_copy(update={"audit_budget": asked})
    assert [model.audit_budget for model in preview(world.session, new).models] == [expected]
    version.recipe = None
    assert [model.audit_budget for model in preview(world.session, new).models] == [0]


def test_twins_that_would_stay_are_shown(world: World) -> None:
    """Rows with the same bytes, unless they are named too or were deleted before."""
    rows = invented_rows("faces")
    same = rows[1].content_hash
    twins = [replace(row, content_hash=same) if row.ordinal in (5, 6, 7) else row for row in rows]
    world.load(world.register(), twins)
    assert preview(world.session, _request(2)).twins == []
    (found,) = preview(world.session, _request(1)).twins
    assert (found.dataset, found.version, found.count) == ("faces", 1, 3)
    assert found.sample_ids == ["faces-05", "faces-06", "faces-07"]
    (found,) = preview(world.session, _request(1, 5)).twins
    assert found.sample_ids == ["faces-06", "faces-07"]
    world.request(6)
    (found,) = preview(world.session, _request(1, 5)).twins
    assert found.sample_ids == ["faces-07"]


def test_a_probe_is_started_once_and_shown_when_it_is_done(world: World) -> None:
    """For just these rows: those to forget, and those that would remain; other rows have none."""
    world.dataset()
    version = world.trained("net")
    (model,) = preview(world.session, _request(1, 2)).models
    assert model.probe is None
    (model,) = preview(world.session, _request(1, 2), probing="engineer").models
    (again,) = preview(world.session, _request(1, 2), probing="engineer").models
    assert model.probe is not None
    assert again.probe == model.probe
    job = world.session.get_one(Job, model.probe.job_id)
    assert (job.kind, job.version_id, job.created_by) == (JobKind.PROBE, version.id, "engineer")
    forget, retain = (row_sets.read(world.session, str(d)) for d in (job.forget_digest, job.rows_digest))
    assert set(forget) == {1, 2}
    assert set(retain) == set(row_sets.read(world.session, str(version.rows_digest))) - {1, 2}
    job.outcome = {"figures": {"recommended": {"alpha": 0.8}}}
    (model,) = preview(world.session, _request(1, 2)).models
    assert model.probe is not None
    assert model.probe.guidance == {"recommended": {"alpha": 0.8}}
    (other,) = preview(world.session, _request(1)).models
    assert other.probe is None
