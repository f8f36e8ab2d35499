"""A version's readiness, measured for real."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from app.db import transaction
from app.errors import Conflict, NotFound
from app.registry import readiness, service
from app.registry.schemas import NewReadiness
from app.tables import Job, JobKind, JobState, ModelVersion

Work = Callable[[JobKind], uuid.UUID]


def test_a_version_that_was_trained_here_is_known_to_its_first_step(work: Work, trained: uuid.UUID) -> None:
    """The figures are there for who asks, with the distance from the training's own beginning."""
    with transaction() as session:
        version = session.get_one(ModelVersion, trained)
        with pytest.raises(NotFound):
            readiness.view(session, version)
        model = service.get(session, "net")
        readiness.start(session, model, version, NewReadiness(rows=64, iterations=4), actor="engineer")
        assert readiness.view(session, version).figures is None
    job_id = work(JobKind.READINESS)
    with transaction() as session:
        assert session.get_one(Job, job_id).state is JobState.DONE
        view = readiness.view(session, session.get_one(ModelVersion, trained))
    assert view.job_id == job_id
    assert view.figures is not None
    assert view.figures["rows"] == 64
    assert view.figures["unrolled"]["distance"] > 0
    assert 0 <= view.figures["memorisation"]["late"] <= 1
    assert view.figures["curvature"]["iterations"] <= 4
    assert view.figures["sentence"].startswith(("Unlearning", "How hard"))


def test_what_has_no_weights_is_refused(work: Work, trained: uuid.UUID) -> None:
    """A version whose weights were discarded cannot be looked at, nor one of a retired model."""
    with transaction() as session:
        version, model = session.get_one(ModelVersion, trained), service.get(session, "net")
        version.weights = None
        with pytest.raises(Conflict):
            readiness.start(session, model, version, NewReadiness(), actor="engineer")
        session.rollback()
