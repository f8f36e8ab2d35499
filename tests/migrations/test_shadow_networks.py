"""Shadow networks come with their migration, and go with it on the way back."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import Connection, text

from tests.migrations.databases import Move, rows_of

_BEFORE, _AFTER = "e7b20c6d91f8", "9f41d3b7c6a0"
_JOB = (
    "INSERT INTO jobs (id, kind, state, parameters, seed, queue, attempt, max_attempts, lease_token,"
    " created_by) VALUES (:id, :kind, 'done', '{}', 0, 'jobs', 1, 5, 1, 'me')"
)


@pytest.mark.parametrize("kind", ["shadow", "estimate"])
def test_the_way_back_takes_jobs_of_the_new_kinds_along(
    connection: Connection, move: Move, kind: str
) -> None:
    """With their progress and what they noted; other jobs stay."""
    move(_AFTER)
    ids = {name: uuid.uuid4() for name in (kind, "reference")}
    for name, job_id in ids.items():
        connection.execute(text(_JOB), {"id": job_id, "kind": name})
        connection.execute(
            text(
                "INSERT INTO job_progress (job_id, phase, done, total, figures) VALUES (:id, 'x', 1, 1, '{}')"
            ),
            {"id": job_id},
        )
        connection.execute(
            text("INSERT INTO artefacts (digest, job_id, name) VALUES ('ab', :id, 'weights')"), {"id": job_id}
        )
    move(_BEFORE)
    left = [(ids["reference"],)]
    assert rows_of(connection, "SELECT id FROM jobs") == left
    assert rows_of(connection, "SELECT job_id FROM job_progress") == left
    assert rows_of(connection, "SELECT job_id FROM artefacts") == left
    move(_AFTER)
    assert rows_of(connection, "SELECT count(*) FROM shadow_networks") == [(0,)]
