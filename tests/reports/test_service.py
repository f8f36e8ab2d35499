"""Decisions by named persons, and what a request gets in the end."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable

import pytest

from app.callers.service import Caller, Forbidden
from app.config import Settings
from app.deletions.schemas import NewItem, NewRequest
from app.errors import Conflict, NotFound
from app.reports import service
from app.tables import Job, JobState, Model, OutboxMessage, RequestState, TargetState
from models_store.blobs import BlobMissing, BlobStore
from tests.fixtures.world import TRAIN, World


@pytest.fixture
def submitter(world: World) -> Caller:
    """Who asks for the deletion."""
    return world.caller("desk")


@pytest.fixture
def approver(world: World) -> Caller:
    """Who decides on the result."""
    return world.caller("officer")


@pytest.fixture
def awaiting(world: World, submitter: Caller) -> Job:
    """A job whose result awaits approval."""
    world.dataset()
    world.trained(publish_when="approved")
    world.request(1, by=submitter)
    return world.carry_out()


def test_an_approved_network_is_published_in_the_approvers_name(
    world: World, awaiting: Job, approver: Caller
) -> None:
    """Version, alias and report name the person and the reason."""
    service.approve(world.session, awaiting.id, approver, "figures checked")
    assert awaiting.model_id is not None
    new = world.aliased(awaiting.model_id)
    assert world.rows(new) == set(TRAIN) - {1}
    assert (awaiting.state, awaiting.settled_at is not None) == (JobState.DONE, True)
    assert (approver.actor, "awaiting_approval->done", "version 2") in world.changes(awaiting.id)
    publication = world.report(awaiting).body["publication"]
    assert (publication["rule"], publication["publish"]) == ("approved", True)
    assert approver.actor in publication["reason"]
    assert "figures checked" in publication["reason"]


def test_an_approval_finishes_the_request(world: World, awaiting: Job, approver: Caller) -> None:
    """The certificate says that it is complete."""
    service.approve(world.session, awaiting.id, approver, "figures checked")
    world.session.flush()
    topics = [message.topic for message in world.session.query(OutboxMessage)]
    assert "deletion_request.completed" in topics
    assert topics.count("job.done") == 3  # of registering, training and unlearning


def test_whoever_asked_for_the_deletion_may_not_approve_it(
    world: World, awaiting: Job, submitter: Caller
) -> None:
    """Nor reject it: two pairs of eyes."""
    with pytest.raises(Forbidden):
        service.approve(world.session, awaiting.id, submitter, "trust me")
    with pytest.raises(Forbidden):
        service.reject(world.session, awaiting.id, submitter, "not me")
    assert awaiting.state is JobState.AWAITING_APPROVAL


def test_one_submitter_among_many_may_not_approve_either(world: World) -> None:
    """A job carries out requests of several callers; none of them decides."""
    world.dataset()
    world.trained(publish_when="approved")
    world.request(1, by=world.caller("desk"))
    other = world.caller("other desk")
    world.request(2, by=other)
    job = world.carry_out()
    with pytest.raises(Forbidden):
        service.approve(world.session, job.id, other, "trust me")


@pytest.mark.parametrize("decide", [service.approve, service.reject])
def test_only_a_job_that_awaits_approval_is_decided_on(
    world: World, approver: Caller, decide: Callable[..., Job]
) -> None:
    """What is published or has failed is over."""
    world.dataset()
    world.trained()
    world.request(1)
    job = world.carry_out()
    with pytest.raises(Conflict):
        decide(world.session, job.id, approver, "late")
    with pytest.raises(NotFound):
        decide(world.session, uuid.uuid4(), approver, "what")


def test_a_decision_is_made_once(world: World, awaiting: Job, approver: Caller) -> None:
    """After an approval a rejection comes too late."""
    service.approve(world.session, awaiting.id, approver, "figures checked")
    with pytest.raises(Conflict):
        service.reject(world.session, awaiting.id, approver, "second thoughts")


def test_a_rejected_network_leads_to_the_next_method(world: World, awaiting: Job, approver: Caller) -> None:
    """The targets run again, under the next rung, and its result awaits approval in turn."""
    service.reject(world.session, awaiting.id, approver, "too much was lost")
    assert awaiting.state is JobState.SUPERSEDED
    assert world.report(awaiting).published is False
    following = world.next_job()
    assert following.rung == 1
    world.compute(following)
    world.settle(following)
    assert following.state is JobState.AWAITING_APPROVAL
    service.approve(world.session, following.id, approver, "figures checked")
    assert (approver.actor, "awaiting_approval->done", "version 2") in world.changes(following.id)


def test_a_rejected_last_method_leaves_the_request_undone(
    world: World, submitter: Caller, approver: Caller
) -> None:
    """The target has failed and can be tried again by name."""
    world.dataset()
    world.trained(publish_when="approved", ladder=[{"method": "retrain"}])
    request = world.request(1, by=submitter)
    job = world.carry_out()
    service.reject(world.session, job.id, approver, "too much was lost")
    (target,) = world.targets(request)
    assert target.state is TargetState.FAILED
    assert "too much was lost" in (target.reason or "")
    assert request.state is RequestState.PARTLY_COMPLETED


def test_an_approval_that_comes_too_late_publishes_nothing(
    world: World, awaiting: Job, approver: Caller
) -> None:
    """The alias has moved on meanwhile; the request is planned anew."""
    model = world.session.get_one(Model, awaiting.model_id)
    current = world.train(model)
    service.approve(world.session, awaiting.id, approver, "figures checked")
    assert awaiting.state is JobState.SUPERSEDED
    assert world.aliased(model.id) is current


def test_a_certificate_shows_items_reports_and_the_end(world: World) -> None:
    """One page holds what was asked, what was found, what was done and how it ended."""
    world.dataset()
    world.trained("first")
    world.trained("second")
    items = [NewItem(sample_id="faces-01"), NewItem(sample_id="unknown")]
    request = world.accept(NewRequest(dataset="faces", items=items))
    world.session.refresh(request)
    pending = service.certificate(world.session, request.id)
    assert (pending.reports, len(pending.items)) == ([], 2)
    assert "not finished" in pending.statement
    world.plan()
    for target in world.targets(request):
        job = world.session.get_one(Job, target.job_id)
        world.compute(job)
        world.settle(job)
    final = service.certificate(world.session, request.id)
    assert final.request.state is RequestState.COMPLETED
    assert [report.published for report in final.reports] == [True, True]
    assert "No model version in use" in final.statement


@pytest.mark.parametrize("read", [service.certificate, service.get, service.page_of, service.attestation_of])
def test_what_is_not_there_is_not_found(world: World, read: Callable[..., object]) -> None:
    """Neither reports nor certificates are invented."""
    with pytest.raises(NotFound):
        read(world.session, uuid.uuid4())


def test_a_report_is_shown_as_a_page_with_its_picture(world: World, config: Settings) -> None:
    """The picture is read from the store and stands in the page; what is no picture is left alone."""
    world.dataset()
    world.trained()
    world.request(1)
    job = world.carry_out()
    report = world.report(job)
    picture = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    report.blobs = {"margins.svg": BlobStore(config.store).put(picture), "scores.safetensors": "0" * 64}
    page = service.page_of(world.session, report.id)
    assert page.startswith("<!DOCTYPE html>")
    assert base64.b64encode(picture).decode() in page


def test_a_lost_picture_is_an_error_and_no_half_page(world: World) -> None:
    """The page does not quietly leave it out."""
    world.dataset()
    world.trained()
    world.request(1)
    report = world.report(world.carry_out())
    report.blobs = {"margins.svg": "0" * 64}
    with pytest.raises(BlobMissing):
        service.page_of(world.session, report.id)
