"""Whatever is killed in the middle of an unlearn job: it ends once, with one version, on the same weights."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.end_to_end.conftest import STEPS, Service, forget_mistakes

Kill = Callable[[Service, str], None]


def _kill(service: Service, *words: str) -> None:
    """Kill -9 every process whose command has these words."""
    found = service.processes(*words)
    assert found, words
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def _kill_job(service: Service, job_id: str) -> None:
    _kill(service, "workers.run", job_id)


def _kill_worker(service: Service, _job_id: str) -> None:
    _kill(service, "celery", "workers.celery_app")


def _kill_scheduler(service: Service, _job_id: str) -> None:
    _kill(service, "app.cli", "scheduler")


def _kill_broker(service: Service, _job_id: str) -> None:
    """Valkey keeps nothing on disk, so killing it wipes its data."""
    _kill(service, "valkey-server")


def _in_the_middle(service: Service, job_id: str) -> None:
    """Wait until the job has done some of its steps and kept a checkpoint."""

    def look() -> bool:
        progress = (service.get(f"/v1/jobs/{job_id}") or {}).get("progress") or {}
        return progress.get("phase") == "unlearn" and 0 < progress["done"] < STEPS

    service.until(look, "the middle of the job")


def _forget(service: Service, model: str, kill: Kill | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    request_id = forget_mistakes(service, model)
    job_id = service.job_of(request_id)
    if kill is not None:
        _in_the_middle(service, job_id)
        kill(service, job_id)
    request = service.finished(request_id)
    assert request["state"] == "completed", request
    job: dict[str, Any] = service.get(f"/v1/jobs/{job_id}")
    return job, service.get(f"/v1/models/{model}/versions")


@pytest.fixture(scope="module")
def undisturbed(service: Service, trained: dict[str, Any]) -> str:
    """The weights of the same deletion when nothing happens."""
    job, versions = _forget(service, "first", None)
    assert job["state"] == "done", job
    assert [version["origin"] for version in versions] == ["trained", "unlearned"]
    return str(versions[-1]["weights"])


@pytest.mark.parametrize("kill", [_kill_job, _kill_worker, _kill_scheduler, _kill_broker])
def test_a_kill_in_the_middle_changes_nothing(
    service: Service, undisturbed: str, digits_model: str, kill: Kill
) -> None:
    """The job is done once, with one new version, bit for bit as without the kill."""
    job, versions = _forget(service, digits_model, kill)

    assert job["state"] == "done", job
    assert job["attempt"] == (2 if kill in (_kill_job, _kill_worker) else 1)
    assert [version["origin"] for version in versions] == ["trained", "unlearned"]
    assert versions[-1]["weights"] == undisturbed
    assert versions[-1]["aliases"] == ["production"]


def test_a_queued_job_survives_the_loss_of_its_message(
    service: Service, undisturbed: str, digits_model: str
) -> None:
    """The broker loses the message that would have woken a worker; the sweep sends another."""
    request_id = forget_mistakes(service, digits_model)
    job_id = service.job_of(request_id)
    _kill_broker(service, job_id)

    assert service.finished(request_id)["state"] == "completed"
    assert service.get(f"/v1/models/{digits_model}/versions")[-1]["weights"] == undisturbed


def test_a_cancelled_job_stops_at_its_next_step(service: Service, digits_model: str) -> None:
    """The process ends, nothing is published, and the request says which model failed and why."""
    request_id = forget_mistakes(service, digits_model)
    job_id = service.job_of(request_id)
    _in_the_middle(service, job_id)
    service.post(f"/v1/jobs/{job_id}/cancel", {"reason": "a test"})

    assert service.ended(job_id)["state"] == "cancelled"
    request = service.finished(request_id)
    assert request["state"] == "partly_completed"
    assert "cancelled" in request["targets"][0]["reason"]
    assert len(service.get(f"/v1/models/{digits_model}/versions")) == 1


def test_a_stopped_worker_hands_its_job_back(service: Service, undisturbed: str, digits_model: str) -> None:
    """SIGTERM returns the job within seconds, without counting an attempt, and the next worker goes on."""
    request_id = forget_mistakes(service, digits_model)
    job_id = service.job_of(request_id)
    _in_the_middle(service, job_id)
    for pid in service.processes("celery", "workers.celery_app"):
        os.kill(pid, signal.SIGTERM)

    assert service.finished(request_id)["state"] == "completed"
    assert service.get(f"/v1/jobs/{job_id}")["attempt"] == 1
    assert service.get(f"/v1/models/{digits_model}/versions")[-1]["weights"] == undisturbed
