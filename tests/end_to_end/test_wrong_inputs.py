"""Wrong inputs: a clear problem+json, or a failed job with its reasons; and nothing has changed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sqlalchemy import func, select

from app.tables import Base, Job
from tests.end_to_end.conftest import MOST_BYTES, Service, copy_digits

# What reading and refusing may leave: that a key was used.
_UNCOUNTED = {"api_keys"}


@pytest.fixture
def counted(service: Service) -> Callable[[], dict[str, int]]:
    """A function that counts the rows of every table, once earlier jobs have been settled."""

    def settled() -> bool:
        with service.session() as session:
            return session.scalar(select(Job.id).where(Job.settled_at.is_(None)).limit(1)) is None

    def count() -> dict[str, int]:
        service.until(settled, "the end of earlier jobs")
        with service.session() as session:
            return {
                table.name: session.scalars(select(func.count()).select_from(table)).one()
                for table in Base.metadata.sorted_tables
                if table.name not in _UNCOUNTED
            }

    return count


def _problem(service: Service, path: str, body: Any, *, method: str = "POST") -> dict[str, Any]:
    response = service.http.request(method, path, json=body)
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    return problem


def test_unknown_and_ambiguous_ids(
    service: Service, digits_model: str, counted: Callable[[], dict[str, int]]
) -> None:
    """Each is named by its place in the request, not by its value."""
    copy_digits(service, f"{digits_model}-twin")
    before = counted()
    unknown = {"dataset": digits_model, "items": [{"sample_id": "no-such-sample"}, {"subject": "nobody"}]}
    problem = _problem(service, "/v1/deletion-requests", unknown)
    assert problem["status"] == 422
    assert [fault["pointer"] for fault in problem["errors"]] == ["/items/0/sample_id", "/items/1/subject"]
    assert "no-such-sample" not in str(problem)

    problem = _problem(service, "/v1/deletion-requests", {"items": [{"sample_id": "digits-0001"}]})
    assert problem["status"] == 422
    assert "several data sets" in problem["errors"][0]["detail"]
    assert counted() == before


def test_a_retired_data_set(service: Service, digits_model: str) -> None:
    """No deletion can name it; and while a model in use was trained on it, it cannot be retired."""
    twin = f"{digits_model}-twin"
    copy_digits(service, twin)
    refused = _problem(service, f"/v1/datasets/{digits_model}/retire", {"reason": "a test"})
    assert refused["status"] == 409

    assert service.post(f"/v1/datasets/{twin}/retire", {"reason": "a test"})[0]["state"] == "retired"
    problem = _problem(
        service, "/v1/deletion-requests", {"dataset": twin, "items": [{"sample_id": "digits-0001"}]}
    )
    assert problem["status"] == 422
    assert problem["errors"][0]["pointer"] == "/dataset"


def test_a_policy_with_every_kind_of_fault(
    service: Service, digits_model: str, counted: Callable[[], dict[str, int]]
) -> None:
    """Negative rho, alpha = 2 and an unknown method are all named in one answer."""
    before = counted()
    policy = {
        "ladder": [
            {"method": "sharp_minmax", "parameters": {"rho": -1, "alpha": 2}},
            {"method": "wishful_thinking"},
        ]
    }
    problem = _problem(service, f"/v1/models/{digits_model}/policy", policy, method="PUT")
    assert problem["status"] == 422
    assert {fault["pointer"] for fault in problem["errors"]} == {
        "/ladder/0/parameters/alpha",
        "/ladder/0/parameters/rho",
        "/ladder/1/method",
    }
    assert counted() == before


def test_a_parquet_file_with_duplicate_ids(service: Service) -> None:
    """The job fails with the row numbers, the data set version is failed, and no sample is kept."""
    ids = ["a", "b", "a", "c"]
    images = [{"bytes": _png(seed), "path": None} for seed in range(4)]
    table = pa.table({"sample_id": ids, "image": images, "label": [0, 1, 0, 1]})
    pq.write_table(table, service.data / "twins.parquet")
    new = {"name": "twins", "reader": "parquet", "location": "twins.parquet"}
    job = service.ended(service.post("/v1/datasets", new)["job_id"])

    assert job["state"] == "failed"
    assert "row 2" in job["reason"]
    (version,) = service.get("/v1/datasets/twins")
    assert version["state"] == "failed"
    assert version["faults"] == ["row 2: it has the same sample ID as row 0"]
    assert version["row_count"] is None


def test_paths_outside_the_data_roots(service: Service, counted: Callable[[], dict[str, int]]) -> None:
    """Neither dots, nor an absolute path, nor a link leads out."""
    (service.data / "way-out").symlink_to("/etc")
    before = counted()
    for location in ("../var/keys", "/etc/passwd", "way-out/passwd", "", "absent.npz"):
        new = {"name": "outside", "reader": "npz", "location": location}
        problem = _problem(service, "/v1/datasets", new)
        assert problem["status"] == 422
        assert problem["errors"][0]["pointer"] == "/location"
    assert counted() == before


def test_broken_json_and_a_huge_body(service: Service, counted: Callable[[], dict[str, int]]) -> None:
    """The first is 400, the second 413, by its declared length or when too much has come."""
    before = counted()
    json_type = {"content-type": "application/json"}
    broken = service.http.post("/v1/deletion-requests", content=b'{"items": [', headers=json_type)
    assert (broken.status_code, broken.headers["content-type"]) == (400, "application/problem+json")

    huge = b'{"items": [' + b" " * MOST_BYTES + b"]}"
    declared = service.http.post("/v1/deletion-requests", content=huge, headers=json_type)
    streamed = service.http.post("/v1/deletion-requests", content=iter([huge]), headers=json_type)
    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert streamed.headers["content-type"] == "application/problem+json"
    assert counted() == before


def _png(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
