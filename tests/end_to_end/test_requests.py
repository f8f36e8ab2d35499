"""Many requests, several models: one job a model, and each request ends when all its models are done."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import select

from app.datasets import rows as row_sets
from app.tables import DatasetVersion, Sample
from tests.end_to_end.conftest import Service, copy_version


def test_fifty_requests_at_once_for_two_models(
    service: Service, trained: dict[str, Any], digits_model: str
) -> None:
    """They make one job a model; each request has two targets and is completed when both are done."""
    copy_version(service, trained, f"{digits_model}-b", digits_model)
    samples = _training_samples(service, digits_model)[:50]

    def post(sample_id: str) -> str:
        body = {"dataset": digits_model, "items": [{"sample_id": sample_id}]}
        return str(service.post("/v1/deletion-requests", body)["id"])

    with ThreadPoolExecutor(16) as pool:
        requests = list(pool.map(post, samples))
    finished = [service.finished(request, seconds=240) for request in requests]

    assert {request["state"] for request in finished} == {"completed"}
    assert {len(request["targets"]) for request in finished} == {2}
    jobs = {target["job_id"] for request in finished for target in request["targets"]}
    assert len(jobs) == 2
    rows = {report["body"]["data"]["forget_rows"] for report in _reports(service) if report["job_id"] in jobs}
    assert rows == {50}


def test_the_same_key_twice_is_one_request(service: Service, digits_model: str) -> None:
    """A repeated Idempotency-Key repeats the answer; with another body it is refused."""
    (sample_id, other_id) = _training_samples(service, digits_model)[60:62]
    headers = {"Idempotency-Key": f'"{digits_model}"'}
    body = {"dataset": digits_model, "items": [{"sample_id": sample_id}]}
    first = service.http.post("/v1/deletion-requests", json=body, headers=headers)
    second = service.http.post("/v1/deletion-requests", json=body, headers=headers)
    body["items"] = [{"sample_id": other_id}]
    third = service.http.post("/v1/deletion-requests", json=body, headers=headers)

    assert (first.status_code, second.status_code, third.status_code) == (202, 202, 422)
    assert first.json() == second.json()
    assert third.json()["type"].endswith("idempotency-key-reused")
    service.finished(first.json()["id"])


def _training_samples(service: Service, dataset: str) -> list[str]:
    """Sample IDs that train, by their rows' numbers."""
    version_id = uuid.UUID(service.get(f"/v1/datasets/{dataset}")[0]["id"])
    with service.session() as session:
        train = row_sets.of_role(session, session.get_one(DatasetVersion, version_id), "train")
        query = select(Sample.ordinal, Sample.sample_id).where(Sample.dataset_version_id == version_id)
        names = dict(session.execute(query).all())
    return [names[ordinal] for ordinal in train]


def _reports(service: Service) -> list[dict[str, Any]]:
    summaries: list[dict[str, Any]] = service.get("/v1/reports?limit=1000")
    return [service.get(f"/v1/reports/{summary['id']}") for summary in summaries]
