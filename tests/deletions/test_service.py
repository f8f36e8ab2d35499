"""Accepting, showing, cancelling, retrying and finishing deletion requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import transaction
from app.deletions import planner, service
from app.deletions.schemas import NewItem, NewRequest
from app.errors import Conflict, Invalid, NotFound
from app.jobs import service as jobs
from app.pseudonyms import pseudonyms
from app.registry import service as registry
from app.tables import (
    DeletionItem,
    DeletionRequest,
    ItemResult,
    Job,
    JobState,
    Model,
    OutboxMessage,
    RequestState,
    Target,
    TargetState,
)
from tests.fixtures.concurrency import Others
from tests.fixtures.world import World, invented_rows


def _new(*sample_ids: str, **terms: Any) -> NewRequest:
    return NewRequest.model_validate(
        {"dataset": "faces", "items": [{"sample_id": sample_id} for sample_id in sample_ids], **terms}
    )


def _topics(world: World) -> list[str]:
    world.session.flush()
    query = select(OutboxMessage.topic).where(OutboxMessage.topic.like("deletion_request.%"))
    return list(world.session.scalars(query.order_by(OutboxMessage.id)))


def test_an_accepted_request_has_all_its_consequences(world: World) -> None:
    """Items, tombstones, a target, an event and a log row come into being together."""
    version = world.dataset()
    world.trained()
    caller = world.caller("desk")
    before = world.counts()
    request = world.accept(_new("faces-01", "faces-02", "unknown"), by=caller)
    after = world.counts()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "deletion_requests": 1,
        "deletion_items": 3,
        "tombstones": 1,
        "tombstoned_rows": 1,
        "targets": 1,
        "outbox": 1,
        "audit_log": 1,
    }
    assert request.state is RequestState.RECEIVED
    assert world.tombstoned(version) == {1, 2}
    assert world.changes(request.id) == [(caller.actor, "accepted", None)]
    assert _topics(world) == ["deletion_request.received"]


def test_an_unknown_item_is_kept_and_says_so(world: World) -> None:
    """Every item of a request has a result, in the order given."""
    world.dataset()
    request = world.accept(_new("unknown", "faces-02"))
    shown = service.view_items(world.session, request.id, after=0, limit=10)
    assert [(item.sample_id, item.result, item.rows) for item in shown] == [
        ("unknown", ItemResult.NO_MATCH, 0),
        ("faces-02", ItemResult.MATCHED, 1),
    ]
    assert shown[0].reason
    assert (request.item_count, request.matched_count) == (2, 1)


def test_a_subject_is_kept_as_a_keyed_hash_only(world: World) -> None:
    """The name of a person is not stored; their rows are found and barred."""
    version = world.dataset()
    request = world.accept(NewRequest(dataset="faces", items=[NewItem(subject="person-3")]))
    (item,) = world.session.scalars(select(DeletionItem).filter_by(request_id=request.id))
    assert (item.sample_id, item.subject_key) == (None, pseudonyms().subject("person-3"))
    assert item.rows == 10
    assert world.tombstoned(version) == set(range(3, 60, 6))


def test_items_of_the_same_sample_are_one_deletion(world: World) -> None:
    """A sample named twice, and again by its subject, is barred once."""
    version = world.dataset()
    items = [NewItem(sample_id="faces-03"), NewItem(sample_id="faces-03"), NewItem(subject="person-3")]
    request = world.accept(NewRequest(dataset="faces", items=items))
    assert request.matched_count == 3
    assert world.tombstoned(version) == set(range(3, 60, 6))


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (("faces-01", "faces-02"), [2, 2]),
        (("faces-01", "faces-02", "faces-01"), [2, 2, 2]),
        (("faces-01", "faces-59"), [2, 1]),
        (("faces-59",), [1]),
        (("faces-01", "unknown"), [2, 0]),
    ],
)
def test_an_item_says_how_many_rows_it_has_in_all_versions(
    world: World, names: tuple[str, ...], rows: list[int]
) -> None:
    """The newer version lacks the last sample."""
    version = world.dataset()
    world.load(world.register(), invented_rows("faces")[:-1])
    request = world.accept(_new(*names))
    items = world.session.scalars(
        select(DeletionItem).filter_by(request_id=request.id).order_by(DeletionItem.position)
    ).all()
    assert [item.rows for item in items] == rows
    assert {item.dataset_id for item in items if item.rows} == {version.dataset_id}
    assert request.matched_count == sum(number > 0 for number in rows)


def test_a_request_has_a_target_for_each_model_that_learned_its_rows(world: World) -> None:
    """Two models trained on the same rows give two targets; a model of other data gives none."""
    world.dataset()
    world.dataset("other")
    first, second = world.trained("first"), world.trained("second")
    world.trained("third", dataset="other")
    targets = world.targets(world.request(1))
    assert [target.model_id for target in targets] == [first.model_id, second.model_id]
    assert {target.state for target in targets} == {TargetState.OPEN}


def test_a_request_that_no_model_learned_from_is_complete_at_once(world: World) -> None:
    """Rows that were never trained on are barred, and nothing else is left to do."""
    version = world.dataset()
    world.trained()
    request = world.request(55)
    assert request.state is RequestState.COMPLETED
    assert request.finished_at is not None
    assert world.targets(request) == []
    assert world.tombstoned(version) == {55}
    assert _topics(world) == ["deletion_request.received", "deletion_request.completed"]


def test_a_version_that_no_alias_names_does_not_count(world: World) -> None:
    """What is not in use has nothing to forget, and cannot come into use with deleted rows."""
    world.dataset()
    world.train(world.model(), alias=None)
    assert world.targets(world.request(1)) == []


def test_rows_that_a_model_has_forgotten_need_no_second_job(world: World) -> None:
    """A later request for the same rows finds them gone."""
    world.dataset()
    world.trained()
    world.request(1)
    world.carry_out()
    assert world.request(1).state is RequestState.COMPLETED


def test_the_policy_of_the_strictest_model_sets_the_due_date(world: World) -> None:
    """A request without a date gets the shortest term of the models concerned."""
    world.dataset()
    world.trained("first", due_days=20)
    world.trained("second", due_days=10)
    term = world.request(1).due_at - datetime.now(UTC)
    assert timedelta(days=9, hours=23) < term <= timedelta(days=10)


def test_a_request_may_name_its_due_date(world: World) -> None:
    """The caller's date counts, in any time zone."""
    world.dataset()
    due = datetime.now(UTC) + timedelta(days=3)
    assert world.accept(_new("faces-01", due_at=due.isoformat())).due_at == due


@pytest.mark.parametrize(
    "due_at", ["2020-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"]
)
def test_a_due_date_lies_in_the_near_future(world: World, due_at: str) -> None:
    """A date that is over, or that no database can hold, is a fault."""
    world.dataset()
    with pytest.raises(Invalid) as found:
        world.accept(_new("faces-01", due_at=due_at))
    assert [fault.pointer for fault in found.value.faults] == ["/due_at"]


def test_an_external_id_is_used_once_by_a_caller(world: World) -> None:
    """A second request under it is a conflict; another caller may use it, too."""
    world.dataset()
    caller = world.caller()
    world.accept(_new("faces-01", external_id="ticket-1"), by=caller)
    with pytest.raises(Conflict):
        world.accept(_new("faces-02", external_id="ticket-1"), by=caller)
    assert world.accept(_new("faces-02", external_id="ticket-1")).external_id == "ticket-1"


def test_a_refused_request_leaves_nothing(live_database: str) -> None:
    """No table has a row more after a request with faults."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        caller = world.caller()
        before = world.counts()
    with pytest.raises(Invalid), transaction(live_database) as session:
        World(session).accept(_new("unknown"), by=caller)
    with transaction(live_database) as session:
        assert World(session).counts() == before


def test_a_pending_request_can_be_taken_back(world: World) -> None:
    """Its rows may train again and its targets are retired, with the reason on record."""
    version = world.dataset()
    world.trained()
    request = world.request(1)
    service.cancel(world.session, request.id, "a mistake", actor="desk")
    assert request.state is RequestState.CANCELLED
    assert request.finished_at is not None
    assert world.tombstoned(version) == set()
    assert [target.state for target in world.targets(request)] == [TargetState.RETIRED]
    assert ("desk", "received->cancelled", "a mistake") in world.changes(request.id)
    assert _topics(world)[-1] == "deletion_request.cancelled"


def test_a_planned_request_can_still_be_taken_back(world: World) -> None:
    """Until a worker has claimed its job, nothing was done."""
    world.dataset()
    world.trained()
    request = world.request(1)
    world.plan()
    service.cancel(world.session, request.id, "a mistake", actor="desk")
    assert request.state is RequestState.CANCELLED


@pytest.mark.parametrize("action", [service.cancel, service.retry])
def test_a_request_that_is_not_there_is_not_found(world: World, action: Any) -> None:
    """Neither cancelling nor retrying invents one."""
    with pytest.raises(NotFound):
        action(world.session, world.caller().id, "why not", actor="desk")


def test_a_request_that_is_being_carried_out_cannot_be_taken_back(world: World) -> None:
    """Its rows are in the forget set of a running job."""
    world.dataset()
    world.trained()
    request = world.request(1)
    world.plan()
    world.begin(world.next_job())
    with pytest.raises(Conflict):
        service.cancel(world.session, request.id, "a mistake", actor="desk")
    assert request.state is RequestState.IN_PROGRESS


@pytest.mark.parametrize("rows", [(1,), (55,)])
def test_a_finished_request_cannot_be_taken_back(world: World, rows: tuple[int, ...]) -> None:
    """What is forgotten stays forgotten, however quickly it was."""
    world.dataset()
    world.trained()
    request = world.request(*rows)
    if rows == (1,):
        world.carry_out()
    with pytest.raises(Conflict):
        service.cancel(world.session, request.id, "a mistake", actor="desk")


def _failed(world: World) -> DeletionRequest:
    """A request whose one job was cancelled."""
    world.dataset()
    world.trained()
    request = world.request(1)
    world.plan()
    job = world.next_job()
    jobs.request_cancel(world.session, job.id, world.caller("operator"), "not now")
    world.settle(job)
    return request


def test_a_failed_request_can_be_tried_again(world: World) -> None:
    """Its target is open again and leads to a new job."""
    request = _failed(world)
    assert request.state == "partly_completed"
    service.retry(world.session, request.id, "the disk has room again", actor="desk")
    (target,) = world.targets(request)
    assert (request.state, request.finished_at) == (RequestState.RECEIVED, None)
    assert (target.state, target.finished_at) == (TargetState.OPEN, None)
    assert ("desk", "failed->open", "the disk has room again") in world.changes(target.id)
    world.carry_out()
    assert request.state is RequestState.COMPLETED


def test_only_what_failed_can_be_tried_again(world: World) -> None:
    """A request without a failed target has nothing to retry."""
    world.dataset()
    world.trained()
    request = world.request(1)
    with pytest.raises(Conflict):
        service.retry(world.session, request.id, "impatience", actor="desk")


def test_a_retry_does_not_make_finished_work_revocable(world: World) -> None:
    """What one model has forgotten stays forgotten while another is tried again."""
    version = world.dataset()
    world.trained("first")
    world.trained("second")
    request = world.request(1)
    world.plan()
    first, second = world.session.scalars(
        select(Job)
        .where(Job.id.in_([target.job_id for target in world.targets(request)]))
        .order_by(Job.ordinal)
    ).all()
    jobs.request_cancel(world.session, second.id, world.caller("operator"), "not now")
    world.settle(second)
    world.compute(first)
    world.settle(first)
    assert request.state is RequestState.PARTLY_COMPLETED
    service.retry(world.session, request.id, "now", actor="desk")
    with pytest.raises(Conflict):
        service.cancel(world.session, request.id, "a mistake", actor="desk")
    assert world.tombstoned(version) == {1}


def test_cancelling_and_claiming_at_once_do_not_block_each_other(others: Others) -> None:
    """Both lock targets before requests: whoever comes first has it, and the other sees what came of it."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        world.trained()
        request_id = world.request(1).id
        world.plan()
        job_id = world.next_job().id

    def claim(session: Session) -> set[int]:
        jobs.claim(session, job_id, worker="worker", lease_seconds=30)
        work = planner.begin(session, session.get_one(Job, job_id), actor="job")
        assert work is not None
        return set(work.forget)

    def cancel(session: Session) -> None:
        service.cancel(session, request_id, "a mistake", actor="desk")

    with transaction(others.url) as session:
        session.execute(select(Target).with_for_update())
        claimed, cancelled = others.stuck(claim), others.stuck(cancel)
    assert claimed.result() == {1}
    with pytest.raises(Conflict):
        cancelled.result()


def test_retiring_and_publishing_at_once_do_not_block_each_other(others: Others) -> None:
    """Both lock the job before the aliases: whoever comes second waits, and is not waited for."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        model_id = world.trained().model_id
        world.request(1)
        world.plan()
        job_id = world.next_job().id

    def retire(session: Session) -> None:
        service.retire_model(session, session.get_one(Model, model_id), "not served", actor="desk")

    with transaction(others.url) as session:
        jobs.locked(session, job_id)
        retired = others.stuck(retire)
        registry.lock_aliases(session)
    retired.result()
    with transaction(others.url) as session:
        assert session.get_one(Job, job_id).state is JobState.CANCELLED


def test_a_request_is_shown_with_its_counts_and_targets(world: World) -> None:
    """The view has what was found and where each model stands."""
    world.dataset()
    version = world.trained()
    request = world.accept(_new("faces-01", "unknown"))
    world.session.refresh(request)
    (shown,) = service.view(world.session, [request])
    assert (shown.items.total, shown.items.matched, shown.items.no_match) == (2, 1, 1)
    assert [(target.model_id, target.state) for target in shown.targets] == [
        (version.model_id, TargetState.OPEN)
    ]


def test_items_are_shown_a_part_at_a_time(world: World) -> None:
    """A request may name very many."""
    world.dataset()
    request = world.request(1, 2, 3, 4)
    shown = service.view_items(world.session, request.id, after=1, limit=2)
    assert [item.position for item in shown] == [1, 2]
