"""Registering, finding and retiring data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.config import Settings
from app.datasets import service
from app.datasets.schemas import NewDataset
from app.errors import Conflict, Invalid, NotFound
from app.tables import DatasetState, JobKind, JobState
from tests.fixtures.world import World


@pytest.fixture
def root(tmp_path: Path, configure: Callable[..., Settings], config: Settings) -> Path:
    """The one folder of data that the operator has allowed, with a file in it."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "faces.npz").write_bytes(b"rows")
    configure(data_roots=folder)
    return folder


def _pointers(found: pytest.ExceptionInfo[Invalid]) -> list[str]:
    return [fault.pointer for fault in found.value.faults]


def test_registering_makes_a_version_and_an_ingest_job(world: World) -> None:
    """A new data set version is pending until the job that reads its rows has ended."""
    new = NewDataset(name="digits", reader="sklearn_digits")
    version, job = service.register(world.session, new, actor="desk")
    assert (version.number, version.state) == (1, DatasetState.PENDING)
    assert (job.kind, job.state, job.dataset_version_id) == (JobKind.INGEST, JobState.QUEUED, version.id)


def test_registering_fills_in_the_readers_defaults(world: World) -> None:
    """What a version was read with is spelled out, so that later defaults change nothing."""
    version = world.register()
    assert version.options == {"mislabelled_subjects": 7, "seed": 0}
    assert version.shares == {"holdout": 0.1, "validation": 0.05, "test": 0.2}


def test_registering_a_name_again_makes_the_next_version(world: World) -> None:
    """A changed data set is a new version of the same one."""
    first, second = world.register(), world.register()
    assert (second.dataset_id, second.number) == (first.dataset_id, 2)


def test_who_registered_is_in_the_audit_log(world: World) -> None:
    """A registration is a change, so it is logged with its actor."""
    version = world.register()
    assert ("test", "registered", None) in world.changes(version.id)


def test_every_fault_of_a_registration_is_named_at_once(world: World) -> None:
    """Wrong options and a location that the reader does not have are reported together."""
    new = NewDataset(
        name="digits",
        reader="sklearn_digits",
        location="somewhere",
        options={"seed": -1, "mislabelled_subjects": 99, "colour": True},
    )
    with pytest.raises(Invalid) as found:
        service.register(world.session, new, actor="desk")
    assert sorted(_pointers(found)) == [
        "/location",
        "/options/colour",
        "/options/mislabelled_subjects",
        "/options/seed",
    ]


def test_an_unknown_reader_is_refused_with_the_known_ones(world: World) -> None:
    """The fault says which readers there are."""
    with pytest.raises(Invalid) as found:
        service.register(world.session, NewDataset(name="d", reader="pickle"), actor="desk")
    assert _pointers(found) == ["/reader"]
    assert "parquet" in found.value.faults[0].detail


def test_a_file_inside_a_root_is_found(root: Path) -> None:
    """Relative and absolute paths inside a data root both lead to the real file."""
    expected = str((root / "faces.npz").resolve())
    assert service.inside_roots("faces.npz") == expected
    assert service.inside_roots(str(root / "faces.npz")) == expected
    assert service.inside_roots("./sub/../faces.npz") == expected


@pytest.mark.parametrize("location", ["", "../outside.npz", "missing.npz", "/etc/passwd", "a\0b"])
def test_a_location_outside_the_roots_is_refused(root: Path, location: str) -> None:
    """Nothing that lies outside the operator's roots can be named, nor told apart from what is missing."""
    (root.parent / "outside.npz").write_bytes(b"secret")
    with pytest.raises(ValueError, match="inside"):
        service.inside_roots(location)


def test_a_link_out_of_a_root_is_refused(root: Path) -> None:
    """A link counts as what it leads to."""
    (root.parent / "outside.npz").write_bytes(b"secret")
    (root / "link.npz").symlink_to(root.parent / "outside.npz")
    with pytest.raises(ValueError, match="inside"):
        service.inside_roots("link.npz")


def test_a_root_whose_name_only_starts_alike_is_outside(root: Path) -> None:
    """`/data-private` is not inside `/data`."""
    twin = root.with_name("data-private")
    twin.mkdir()
    (twin / "faces.npz").write_bytes(b"secret")
    with pytest.raises(ValueError, match="inside"):
        service.inside_roots(str(twin / "faces.npz"))


def test_without_roots_no_location_can_be_named(config: Settings) -> None:
    """The default allows no folder at all."""
    with pytest.raises(ValueError, match="EXPUNGE_DATA_ROOTS"):
        service.inside_roots("faces.npz")


@pytest.fixture
def bucket(configure: Callable[..., Settings], config: Settings) -> None:
    """The operator has allowed one folder of a bucket."""
    configure(data_urls="s3://bucket/photos")


def _location(world: World, location: str) -> str:
    new = NewDataset(name="d", reader="parquet", location=location)
    return service.register(world.session, new, actor="desk")[0].location


def test_a_url_below_an_allowed_one_is_taken(bucket: None, world: World) -> None:
    """The reader is given the URL without a slash at its end; whether anything is there is seen later."""
    assert _location(world, "s3://bucket/photos/2026/") == "s3://bucket/photos/2026"
    assert _location(world, "s3://bucket/photos") == "s3://bucket/photos"


@pytest.mark.parametrize(
    "location",
    [
        *("s3://bucket/photos-private/x", "s3://bucket-evil/photos", "s3://bucket", "gs://bucket/photos"),
        *("s3://bucket/photos/../x", "s3://bucket/photos/%2e%2e/x", "file:///etc/passwd", "local://etc"),
        *("s3://key:secret@bucket/photos", "simplecache::s3://bucket/photos", "memory://bucket/photos"),
    ],
)
def test_other_urls_are_refused(bucket: None, world: World, location: str) -> None:
    """However it is written; and the fault does not repeat it."""
    with pytest.raises(Invalid) as found:
        _location(world, location)
    assert _pointers(found) == ["/location"]
    assert "secret" not in found.value.faults[0].detail


def test_without_allowed_urls_none_can_be_named(root: Path, world: World) -> None:
    """The default allows none, and a URL is never taken for a path."""
    with pytest.raises(Invalid) as found:
        _location(world, "s3://bucket/photos")
    assert "EXPUNGE_DATA_URLS" in found.value.faults[0].detail


def _download(world: World, location: str) -> None:
    options = {"name": "SVHN", "download": True}
    new = NewDataset(name="d", reader="torchvision", location=location, options=options)
    service.register(world.session, new, actor="desk")


def test_downloads_are_for_the_operator_to_allow(
    root: Path, configure: Callable[..., Settings], world: World
) -> None:
    """By default nothing is fetched from outside."""
    with pytest.raises(Invalid) as found:
        _download(world, str(root))
    assert _pointers(found) == ["/options/download"]
    configure(data_roots=root, allow_downloads=True)
    _download(world, str(root))


def test_downloads_go_into_folders(configure: Callable[..., Settings], world: World) -> None:
    """Nothing is written into a bucket."""
    configure(data_urls="s3://bucket", allow_downloads=True)
    with pytest.raises(Invalid) as found:
        _download(world, "s3://bucket/sets")
    assert _pointers(found) == ["/options/download"]


def test_a_refused_location_tells_nothing_of_the_path(root: Path, world: World) -> None:
    """The fault does not repeat what was sent."""
    new = NewDataset(name="d", reader="npz", location="../person-secret.npz")
    with pytest.raises(Invalid) as found:
        service.register(world.session, new, actor="desk")
    assert _pointers(found) == ["/location"]
    assert "secret" not in found.value.faults[0].detail


def test_training_takes_the_newest_ready_version(world: World) -> None:
    """A newer version that is not ready yet does not count, and a number names one version."""
    first, second = world.dataset(), world.dataset()
    world.register()
    assert service.newest_ready(world.session, "faces") is second
    assert service.newest_ready(world.session, "faces", 1) is first


@pytest.mark.parametrize(("name", "number"), [("faces", 2), ("unknown", None)])
def test_training_on_what_is_not_there_is_refused(world: World, name: str, number: int | None) -> None:
    """Neither an unknown data set nor an unknown version can be trained on."""
    world.dataset()
    with pytest.raises(Invalid) as found:
        service.newest_ready(world.session, name, number)
    assert _pointers(found) == ["/dataset"]


def test_a_retired_data_set_is_out_of_force(world: World) -> None:
    """Nothing trains on it any more."""
    version = world.dataset()
    service.retire(world.session, "faces", "contract ended", actor="desk")
    assert version.state is DatasetState.RETIRED
    assert ("desk", "ready->retired", "contract ended") in world.changes(version.id)
    with pytest.raises(Invalid):
        service.newest_ready(world.session, "faces")


def test_a_data_set_that_a_model_in_use_was_trained_on_cannot_be_retired(world: World) -> None:
    """Deletions from it must stay possible."""
    version = world.dataset()
    world.trained()
    with pytest.raises(Conflict):
        service.retire(world.session, "faces", "contract ended", actor="desk")
    assert version.state is DatasetState.READY


def test_retiring_what_is_not_there_is_not_found(world: World) -> None:
    """There is no such data set."""
    with pytest.raises(NotFound):
        service.retire(world.session, "unknown", "why not", actor="desk")


def test_a_refused_registration_keeps_its_faults(world: World) -> None:
    """Whoever registered the data can read what is wrong with it."""
    version = world.register()
    service.refuse(version, ["row 3: the sample ID is not unique"], actor="job")
    shown = service.versions_of(world.session, "faces")[0]
    assert (shown.state, shown.faults) == (DatasetState.FAILED, ["row 3: the sample ID is not unique"])


def test_versions_are_shown_newest_first(world: World) -> None:
    """The newest registration comes first."""
    world.register()
    world.register()
    assert [shown.version for shown in service.versions_of(world.session, "faces")] == [2, 1]
