"""Uploading, registering, downloading, tracing and retiring models."""

from __future__ import annotations

import base64
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from sqlalchemy import func, select

from app.config import Settings
from app.datasets import rows as row_sets
from app.jobs import service as jobs
from app.tables import Job, JobKind, JobState, ModelVersion, RequestState, TargetState, VersionState
from models_store.rows import RowSet
from tests.fixtures.api import Api
from tests.fixtures.world import World

FILE = save({"weight": np.arange(6, dtype=np.float32).reshape(2, 3)})
DIGEST = hashlib.sha256(FILE).hexdigest()
NORMALISATION = {"mean": [0.5], "std": [0.25]}


def _upload(api: Api, content: bytes = FILE, digest: str | None = None) -> Any:
    address = digest or hashlib.sha256(content).hexdigest()
    return api.send("PUT", f"/v1/weights/{address}", content=content)


def _stored(config: Settings) -> list[Path]:
    return [path for path in Path(config.store).rglob("*") if path.is_file() and path.name != "lock"]


def _new(**changes: Any) -> dict[str, Any]:
    new = {
        "weights": DIGEST,
        "architecture": {"name": "small_cnn", "normalisation": NORMALISATION},
        "dataset": "faces",
        "recipe": {"epochs": 2},
    }
    return {**new, **changes}


@pytest.fixture
def ready(api: Api, world: World) -> Api:
    """A data set, a model without versions, and an uploaded file."""
    world.dataset()
    world.model("net")
    assert _upload(api).status_code == 201
    return api


def _pointers(response: Any) -> set[str]:
    assert response.status_code == 422, response.text
    return {fault["pointer"] for fault in response.json()["errors"]}


def test_a_file_is_kept_under_its_digest(api: Api, config: Settings) -> None:
    """Sending it again changes nothing, and says so."""
    first, second = _upload(api), _upload(api)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json() == {"weights": DIGEST, "bytes": len(FILE), "tensors": 1}
    assert [path.name for path in _stored(config)] == [DIGEST]


@pytest.mark.parametrize(
    ("content", "digest", "reason"),
    [
        (FILE, "0" * 64, DIGEST),
        (FILE[:-1], None, "cut off"),
        (pickle.dumps({"a": 1}), None, "pickle"),
        (b"", None, "no safetensors"),
    ],
)
def test_what_is_no_weights_file_leaves_nothing(
    api: Api, config: Settings, content: bytes, digest: str | None, reason: str
) -> None:
    """Each is refused with its reason."""
    response = _upload(api, content, digest)
    assert response.status_code == 422
    assert reason in response.json()["errors"][0]["detail"]
    assert _stored(config) == []


def test_an_address_that_is_no_digest_is_refused(api: Api) -> None:
    """Nothing else can be named so."""
    assert _upload(api, FILE, "../../etc/passwd").status_code in (404, 422)
    assert _upload(api, FILE, "A" * 64).status_code == 422


def test_a_registered_version_waits_for_its_validation(ready: Api, world: World) -> None:
    """It has the next number, everything spelled out, and a job."""
    response = ready.post("/v1/models/net/versions", _new())
    assert response.status_code == 202
    assert response.headers["location"] == "/v1/models/net/versions/1"
    assert response.json()["notes"] == []
    version = ready.get("/v1/models/net/versions/1").json()
    assert (version["state"], version["origin"], version["rows"]) == ("validating", "uploaded", None)
    assert version["architecture"]["normalisation"] == NORMALISATION
    job = world.next_job(JobKind.VALIDATE)
    assert job.parameters == {"rows": {"role": "train"}, "alias": "production"}


def test_without_a_recipe_the_cost_is_said(ready: Api) -> None:
    """What cannot be retrained cannot pass, and may not be cleaned at all."""
    notes = ready.post("/v1/models/net/versions", _new(recipe=None)).json()["notes"]
    assert ["retrain" in note for note in notes] == [True]
    ready.put("/v1/models/net/policy", {"ladder": [{"method": "retrain"}]})
    assert len(ready.post("/v1/models/net/versions", _new(recipe=None)).json()["notes"]) == 2


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"weights": "1" * 64}, {"/weights"}),
        ({"architecture": {"name": "small_cnn"}}, {"/architecture/normalisation"}),
        ({"architecture": {"name": "vgg99"}}, {"/architecture/builtin/name"}),
        ({"architecture": {"family": "torchvision", "name": "vgg99"}}, {"/architecture/torchvision/name"}),
        ({"architecture": {"family": "onnx", "name": "x"}}, {"/architecture"}),
        (
            {"architecture": {"family": "plugin", "name": "mine", "normalisation": NORMALISATION}},
            {"/architecture/name"},
        ),
        (
            {"architecture": {"name": "vgg16", "normalisation": NORMALISATION}},
            {"/architecture/name"},  # the images have 8 x 8 pixels
        ),
        ({"dataset": "nowhere"}, {"/dataset"}),
        ({"dataset_version": 9}, {"/dataset"}),
        ({"rows": {"sample_ids": ["faces-01", "x", "y"]}}, {"/rows/sample_ids/1", "/rows/sample_ids/2"}),
        ({"rows": {"file": "/etc/passwd"}}, {"/rows/file"}),
        ({"weights": "1" * 64, "dataset": "nowhere"}, {"/weights", "/dataset"}),
    ],
)
def test_every_fault_is_named_and_nothing_is_registered(
    ready: Api, world: World, changes: dict[str, Any], pointers: set[str]
) -> None:
    """All of them at once."""
    assert _pointers(ready.post("/v1/models/net/versions", _new(**changes))) == pointers
    assert world.session.scalar(select(func.count()).select_from(ModelVersion)) == 0


def _finish(world: World, outcome: dict[str, Any]) -> None:
    """The oldest validation that waits ends so."""
    waiting = select(Job).filter_by(kind=JobKind.VALIDATE, state=JobState.QUEUED).order_by(Job.ordinal)
    job = world.session.scalars(waiting.limit(1)).one()
    jobs.finish_computing(world.session, world.claim(job), outcome)
    world.settle(job)


def _valid(world: World, *rows: int) -> dict[str, Any]:
    digest = row_sets.keep(world.session, RowSet.of(rows))
    return {"faults": [], "rows_digest": digest, "quarantined": 0, "figures": {"parameters": 6}}


def test_a_valid_version_goes_into_use(ready: Api, world: World) -> None:
    """It is ready, with its figures and rows, and the alias names it."""
    ready.post("/v1/models/net/versions", _new())
    _finish(world, _valid(world, *range(40)))
    version = ready.get("/v1/models/net/versions/1").json()
    assert (version["state"], version["aliases"], version["rows"]) == ("ready", ["production"], 40)
    assert version["figures"] == {"parameters": 6}


def test_an_invalid_version_keeps_its_faults_and_nothing_else(
    ready: Api, world: World, config: Settings
) -> None:
    """Its file goes, unless another version has the very same."""
    ready.post("/v1/models/net/versions", _new())
    ready.post("/v1/models/net/versions", _new())
    faults = [{"at": "weights", "detail": "the file lacks the tensor bias"}]
    _finish(world, {"faults": faults})
    version = ready.get("/v1/models/net/versions/1").json()
    assert (version["state"], version["faults"], version["weights"]) == ("failed", faults, None)
    assert len(_stored(config)) == 1
    _finish(world, {"faults": faults})
    assert _stored(config) == []


def test_a_version_on_deleted_rows_is_quarantined(ready: Api, world: World) -> None:
    """Ready, but in no use; and it says how many rows keep it out."""
    world.request(3, 4)
    ready.post("/v1/models/net/versions", _new())
    _finish(world, _valid(world, 1, 2, 3))
    version = ready.get("/v1/models/net/versions/1").json()
    assert (version["state"], version["aliases"], version["quarantined"]) == ("ready", [], 1)
    assert "deleted" in ready.get(f"/v1/jobs/{version['job_id']}").json()["reason"]


def test_a_version_without_a_recipe_is_cleaned_without_retraining(ready: Api, world: World) -> None:
    """The exact rungs are left out of the copy of the policy that the job gets."""
    ready.post("/v1/models/net/versions", _new(recipe=None))
    _finish(world, _valid(world, *range(40)))
    world.request(3)
    assert world.plan() == 1
    policy = world.next_job(JobKind.UNLEARN).policy
    assert policy is not None
    assert [rung["method"] for rung in policy["ladder"]] == ["neggrad"]


def test_a_version_that_no_method_fits_fails_its_request_by_name(ready: Api, world: World) -> None:
    """Only exact methods, and no recipe for them: somebody has to be told."""
    ready.put("/v1/models/net/policy", {"ladder": [{"method": "retrain"}], "batch_window_seconds": 0})
    ready.post("/v1/models/net/versions", _new(recipe=None))
    _finish(world, _valid(world, *range(40)))
    request = world.request(3)
    world.plan()
    (target,) = world.targets(request)
    assert target.state is TargetState.FAILED
    assert "recipe" in (target.reason or "")
    assert request.state is RequestState.PARTLY_COMPLETED


def test_weights_are_downloaded_with_their_digest(ready: Api, world: World) -> None:
    """Byte for byte what was uploaded; who has it already gets no body."""
    ready.post("/v1/models/net/versions", _new())
    response = ready.get("/v1/models/net/versions/1/weights")
    assert response.content == FILE
    assert response.headers["etag"] == f'"{DIGEST}"'
    encoded = base64.b64encode(hashlib.sha256(FILE).digest()).decode()
    assert response.headers["repr-digest"] == f"sha-256=:{encoded}:"
    again = ready.with_headers(If_None_Match=f'"{DIGEST}"').get("/v1/models/net/versions/1/weights")
    assert (again.status_code, again.content) == (304, b"")


def test_a_lineage_goes_both_ways(api: Api, world: World) -> None:
    """From where a version came, and what came of it."""
    world.dataset()
    world.trained("net")
    world.request(3)
    world.carry_out()
    lineage = api.get("/v1/models/net/versions/2/lineage").json()
    assert [step["number"] for step in lineage["ancestors"]] == [2, 1]
    assert lineage["ancestors"][0]["method"] == "neggrad"
    assert [
        step["number"] for step in api.get("/v1/models/net/versions/1/lineage").json()["descendants"]
    ] == [2]


def test_a_retired_model_has_nothing_left_to_do(api: Api, world: World) -> None:
    """Its aliases go, its requests end, its jobs are cancelled, and nothing more is taken."""
    world.dataset()
    version = world.trained("net")
    request = world.request(3)
    world.plan()
    job = world.next_job(JobKind.UNLEARN)
    shown = api.post("/v1/models/net/retire", {"reason": "no longer served"})
    assert (shown.status_code, shown.json()["aliases"]) == (200, {})
    assert shown.json()["retired_at"] is not None
    (target,) = world.targets(request)
    assert (target.state, request.state) == (TargetState.RETIRED, RequestState.COMPLETED)
    assert (job.state, version.state) == ("cancelled", VersionState.SUPERSEDED)
    assert api.post("/v1/models/net/retire", {"reason": "again"}).status_code == 409
    assert api.post("/v1/models/net/train", {"dataset": "faces"}).status_code == 409
    move = {"version": 1, "reason": "back"}
    assert api.put("/v1/models/net/aliases/production", move).status_code == 409
    assert [model["name"] for model in api.get("/v1/models", retired=False).json()] == []


def test_an_alias_is_removed(api: Api, world: World) -> None:
    """The version that only it named is superseded."""
    world.dataset()
    version = world.trained("net")
    path = "/v1/models/net/aliases/production/remove"
    assert api.post(path, {"reason": "not served any more"}).json()["aliases"] == {}
    assert version.state is VersionState.SUPERSEDED
    assert api.post(path, {"reason": "again"}).status_code == 404


def test_readers_and_architectures_are_described(api: Api) -> None:
    """With the JSON schema of everything that can be said."""
    readers = {reader["name"]: reader for reader in api.get("/v1/readers").json()}
    assert "metadata" in readers["image_folder"]["options"]["properties"]
    found = api.get("/v1/architectures").json()
    assert "resnet18" in found["torchvision"]
    assert found["plugins"] == []


def test_a_plugin_is_trained_only_if_the_operator_approved_it(
    ready: Api, configure: Callable[..., Settings]
) -> None:
    """What is installed may still not be what is to be run."""
    training = {"dataset": "faces", "architecture": {"family": "plugin", "name": "mine"}}
    assert _pointers(ready.post("/v1/models/net/train", training)) == {"/architecture/name"}
    configure(network_plugins="mine,other")
    assert ready.post("/v1/models/net/train", training).status_code == 202


def test_all_that_a_training_cannot_use_is_named(ready: Api) -> None:
    """A plugin that is not approved beside a data set that is not there; images that are too small."""
    nowhere = {"dataset": "nowhere", "architecture": {"family": "plugin", "name": "mine"}}
    refused = ready.post("/v1/models/net/train", nowhere)
    assert _pointers(refused) == {"/architecture/name", "/dataset"}
    small = ready.post("/v1/models/net/train", {"dataset": "faces", "architecture": {"name": "resnet18"}})
    assert "at least 9 pixels; these have 8 x 8" in small.json()["errors"][0]["detail"]
