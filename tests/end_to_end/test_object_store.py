"""The whole service on a real S3 server, whose address and credentials only the environment has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from models_store.blobs import BlobStore
from tests.end_to_end.conftest import Service, register_digits, running


def _collect(service: Service, *options: str, **variables: str) -> str:
    """What `expunge gc` says, run by an operator who knows the service's folder and store."""
    settings = {"EXPUNGE_VAR": str(service.var), **variables}
    command = [sys.executable, "-m", "app.cli", "gc", *options]
    done = subprocess.run(
        command, env={**os.environ, **settings}, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def test_the_service_keeps_its_blobs_in_s3(
    tmp_path: Path, s3_url: str, s3_variables: Mapping[str, str]
) -> None:
    """A job's process stores the weights there; a collection on the running service spares them."""
    variables = {"EXPUNGE_STORE_URL": s3_url, **s3_variables}
    store = BlobStore(s3_url)
    with running(tmp_path, **variables) as service:
        register_digits(service, "digits")
        service.post("/v1/models", {"name": "digits"})
        training = {"dataset": "digits", "recipe": {"epochs": 1}}
        job = service.ended(service.post("/v1/models/digits/train", training)["job_id"])
        assert job["state"] == "done", job
        (version,) = service.get("/v1/models/digits/versions")
        assert store.has(version["weights"])
        said = _collect(service, **variables)
        assert "Nothing was removed" in said
        assert "garbage" not in said
        assert "Removed: 0 blobs (0 B)." in _collect(service, "--delete", **variables)
        assert store.has(version["weights"])
    assert not (service.var / "store").exists()
