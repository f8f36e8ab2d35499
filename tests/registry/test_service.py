"""Models, their versions, and the aliases that name them."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from functools import partial

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.datasets import service as datasets
from app.db import transaction
from app.errors import Conflict, Invalid, NotFound
from app.jobs.params import TrainingRecipe
from app.registry import references, service, views
from app.registry.schemas import NewModel, Training
from app.reports import publisher
from app.tables import Alias, JobKind, JobState, ModelVersion, VersionState
from tests.fixtures.concurrency import Others
from tests.fixtures.world import TRAIN, World


def _move(world: World, version: ModelVersion, alias: str = "production") -> None:
    service.set_alias(world.session, version, alias, actor="desk", reason="try it")
    world.session.flush()


def test_a_models_name_is_taken_once(world: World) -> None:
    """A second model of the same name is a conflict."""
    world.model("net")
    with pytest.raises(Conflict):
        service.create(world.session, NewModel(name="net"), actor="desk")


def test_an_unknown_model_is_not_found(world: World) -> None:
    """There is no such model."""
    with pytest.raises(NotFound):
        service.get(world.session, "net")


def test_training_queues_a_job_with_everything_spelled_out(world: World) -> None:
    """The recipe's defaults of this day are in the job."""
    version = world.dataset()
    training = Training(dataset="faces", alias=None, seed=5)
    job = service.train(world.session, world.model(), training, actor="desk")
    assert (job.kind, job.state, job.dataset_version_id) == (JobKind.TRAIN, JobState.QUEUED, version.id)
    assert job.parameters["recipe"]["epochs"] == 40
    assert (job.parameters["alias"], job.seed) == (None, 5)


def test_training_on_an_unready_data_set_is_refused(world: World) -> None:
    """A registration that is still being read cannot be trained on."""
    world.register()
    with pytest.raises(Invalid):
        service.train(world.session, world.model(), Training(dataset="faces"), actor="desk")


def test_patience_needs_validation_rows(world: World) -> None:
    """A recipe that stops by validation rows is refused for a data set without, and taken for others."""
    training = Training(dataset="faces", recipe=TrainingRecipe(patience=3))
    version = world.dataset()
    version.role_counts = {"train": 40}
    with pytest.raises(Invalid) as refusal:
        service.train(world.session, world.model(), training, actor="desk")
    assert [fault.pointer for fault in refusal.value.faults] == ["/recipe/patience"]
    version.role_counts = {"train": 40, "validation": 5}
    job = service.train(world.session, world.model("other"), training, actor="desk")
    assert job.parameters["recipe"]["patience"] == 3


def test_a_trained_version_is_named_by_its_alias(world: World) -> None:
    """It stands on the training rows, and its numbers start at 1."""
    world.dataset()
    version = world.trained()
    assert (version.number, version.state, version.origin) == (1, VersionState.READY, "trained")
    assert world.rows(version) == set(TRAIN)
    assert world.aliased(version.model_id) is version


def test_a_version_without_an_alias_is_in_no_use(world: World) -> None:
    """Training with no alias moves none."""
    world.dataset()
    version = world.train(world.model(), alias=None)
    assert service.aliased_versions_of(world.session, version.model_id) == []


def test_training_again_supersedes_the_former_version(world: World) -> None:
    """The alias moves to the new version, and nothing names the old one any more."""
    world.dataset()
    model = world.model()
    first, second = world.train(model), world.train(model)
    assert (first.state, second.state, second.number) == (VersionState.SUPERSEDED, VersionState.READY, 2)
    assert world.session.get_one(Alias, (model.id, "production")).revision == 2


def test_a_version_that_another_alias_names_stays_ready(world: World) -> None:
    """A version is superseded when its last alias has left it."""
    world.dataset()
    model = world.model()
    first = world.train(model)
    _move(world, first, "stable")
    world.train(model)
    assert first.state is VersionState.READY


def test_an_alias_can_go_back_to_a_superseded_version(world: World) -> None:
    """A roll back reinstates the version."""
    world.dataset()
    model = world.model()
    first, second = world.train(model), world.train(model)
    _move(world, first)
    assert (first.state, second.state) == (VersionState.READY, VersionState.SUPERSEDED)
    assert world.aliased(model.id) is first


def test_a_move_says_who_moved_what_and_why(world: World) -> None:
    """The audit log has the actor and the reason, and the outbox tells others."""
    world.dataset()
    version = world.train(world.model(), alias=None)
    _move(world, version)
    assert ("desk", "alias moved", "try it") in world.changes(version.id)


def test_moving_an_alias_to_where_it_is_changes_nothing(world: World) -> None:
    """The same call twice is one move."""
    world.dataset()
    version = world.trained()
    _move(world, version)
    assert world.session.get_one(Alias, (version.model_id, "production")).revision == 1


def test_an_alias_never_moves_back_to_deleted_rows(world: World) -> None:
    """A roll back to the version before a deletion is refused, and the version stays superseded."""
    world.dataset()
    version = world.trained()
    world.request(1)
    world.carry_out()
    with pytest.raises(Conflict):
        _move(world, version)
    assert world.aliased(version.model_id).number == 2
    assert version.state is VersionState.SUPERSEDED  # nothing was half done


def test_an_alias_never_moves_to_rows_whose_deletion_is_pending(world: World) -> None:
    """A tombstone counts from the moment the request was accepted."""
    world.dataset()
    version = world.train(world.model(), alias=None)
    world.request(1)
    with pytest.raises(Conflict):
        _move(world, version)


def test_an_alias_never_moves_to_a_retired_data_set(world: World) -> None:
    """No deletion could reach the version's rows there."""
    world.dataset()
    model = world.model()
    version = world.train(model, alias=None)
    datasets.retire(world.session, "faces", "contract ended", actor="desk")
    with pytest.raises(Conflict):
        _move(world, version)


@pytest.mark.parametrize("state", [VersionState.FAILED, VersionState.PURGED, VersionState.VALIDATING])
def test_only_a_usable_version_can_be_named(world: World, state: VersionState) -> None:
    """Weights that are not there, or were not checked, are not put into use."""
    world.dataset()
    version = world.train(world.model(), alias=None)
    version.state = state
    with pytest.raises(Conflict):
        _move(world, version)


def test_replacing_moves_every_alias_of_the_old_version(world: World) -> None:
    """Whatever named the old version names the new one; other aliases stay."""
    world.dataset()
    model = world.model()
    other = world.train(model, alias="archive")
    old = world.train(model)
    _move(world, old, "stable")
    new = world.train(model, alias=None)
    moved = service.replace_everywhere(world.session, old=old, new=new, actor="desk", reason="better")
    assert sorted(moved) == ["production", "stable"]
    assert world.aliased(model.id) is world.aliased(model.id, "stable") is new
    assert world.aliased(model.id, "archive") is other
    assert old.state is VersionState.SUPERSEDED


def test_replacing_a_version_that_nothing_names_moves_nothing(world: World) -> None:
    """The compare-and-swap finds that somebody else has moved the alias."""
    world.dataset()
    model = world.model()
    old, current = world.train(model), world.train(model)
    new = world.train(model, alias=None)
    assert service.replace_everywhere(world.session, old=old, new=new, actor="desk", reason="late") == []
    assert world.aliased(model.id) is current


def test_replacing_never_brings_a_deleted_row_back(world: World) -> None:
    """A version that holds a deleted row which the old one does not hold is refused."""
    world.dataset()
    model = world.model()
    full = world.train(model, alias=None)
    world.request(1)
    clean = world.train(model)
    with pytest.raises(Conflict):
        service.replace_everywhere(world.session, old=clean, new=full, actor="desk", reason="wrong")
    assert world.aliased(model.id) is clean


def test_replacing_may_lag_behind_a_deletion_that_arrived_meanwhile(world: World) -> None:
    """A step away from deleted rows is a step forward, although one of them is still in it."""
    world.dataset()
    world.trained()
    world.request(1)
    world.plan()
    job = world.next_job()
    world.compute(job)
    world.request(2)
    world.settle(job)
    assert world.rows(world.aliased(job.model_id or job.id)) == set(TRAIN) - {1}


def test_versions_made_at_once_get_numbers_without_gaps(others: Others) -> None:
    """Two train jobs of one model that end together make two versions, one after the other."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        model = world.model()
        ended = [service.train(session, model, Training(dataset="faces"), actor="desk") for _ in range(5)]
        for job in ended:
            world.finish_training(job)
        model_id, job_ids = model.id, [job.id for job in ended]
    for future in [others.start(partial(publisher.settle, job_id=job_id)) for job_id in job_ids]:
        future.result()
    with transaction(others.url) as session:
        numbers = session.scalars(select(ModelVersion.number).filter_by(model_id=model_id))
        assert sorted(numbers) == [1, 2, 3, 4, 5]


@pytest.fixture
def spare(live_database: str) -> uuid.UUID:
    """The ID of a version in the live database that no alias names yet."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        return world.train(world.model(), alias=None).id


def test_an_alias_cannot_overtake_a_deletion(others: Others, spare: uuid.UUID) -> None:
    """A move that comes while a request is being accepted waits for it, and is then refused."""

    def move(session: Session) -> None:
        _move(World(session), session.get_one(ModelVersion, spare))

    with transaction(others.url) as session:
        World(session).request(1)
        moved = others.stuck(move)
    with pytest.raises(Conflict):
        moved.result()


def test_a_deletion_cannot_overtake_an_alias(others: Others, spare: uuid.UUID) -> None:
    """A request that comes while an alias moves waits for it, and then has a target."""

    def accept(session: Session) -> int:
        world = World(session)
        return len(world.targets(world.request(1)))

    with transaction(others.url) as session:
        _move(World(session), session.get_one(ModelVersion, spare))
        accepted = others.stuck(accept)
    assert accepted.result() == 1


def test_two_models_of_one_name_made_at_once_are_one(others: Others) -> None:
    """The database lets one of them have the name."""

    def create(session: Session) -> None:
        World(session).model("net")

    def occupy(session: Session) -> None:
        create(session)
        rival.append(others.stuck(create))

    rival: list[Future[None]] = []
    others.start(occupy).result()
    with pytest.raises(IntegrityError):
        rival[0].result()


def test_a_reference_is_found_for_its_version_and_rows(world: World) -> None:
    """A network retrained on other rows is no reference for these."""
    world.dataset()
    version = world.trained(audit_budget=1)
    assert version.rows_digest is not None
    assert references.find(world.session, version.id, version.rows_digest) is None


def test_a_version_is_shown_with_its_rows_and_aliases(world: World) -> None:
    """A reader sees on how many rows it stands and what names it."""
    world.dataset()
    version = world.trained()
    _move(world, version, "stable")
    (shown,) = views.view_versions(world.session, [version])
    assert (shown.rows, shown.aliases, shown.origin) == (len(TRAIN), ["production", "stable"], "trained")


def test_a_model_is_shown_with_what_its_aliases_name(world: World) -> None:
    """A reader sees the numbers of the versions in use."""
    world.dataset()
    version = world.trained()
    shown = views.view(world.session, service.get(world.session, "net"))
    assert shown.aliases == {"production": version.number}
    assert shown.policy.number == 1
