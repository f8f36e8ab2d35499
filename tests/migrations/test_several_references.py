"""Who waited for a job waits for a set of one; a reference becomes the first of its rows; and back."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import Connection, text

from tests.migrations.databases import Move, rows_of

_BEFORE, _AFTER = "2c7e94d05ab1", "8a61f2d3e0c7"
_WAITS = (
    "SELECT job.seed, other.seed FROM job_waits JOIN jobs AS job ON job.id = job_id"
    " JOIN jobs AS other ON other.id = other_id ORDER BY 1, 2"
)
_WAITED = "SELECT seed FROM jobs WHERE has_waited ORDER BY 1"


class _Old:
    """A reference job that is over, one that is live, a job that waits for it, and one that never waited."""

    def __init__(self, connection: Connection, move: Move) -> None:
        move(_BEFORE)
        self._connection = connection
        self.version, self.over, self.live, self.waiting = (uuid.uuid4() for _ in range(4))
        self._run("INSERT INTO row_sets (digest, size, bits) VALUES ('rows', 0, '')")
        dataset, data, model = (uuid.uuid4() for _ in range(3))
        self._run("INSERT INTO datasets (id, name, created_by) VALUES (:id, 'faces', 'me')", id=dataset)
        self._run(
            "INSERT INTO dataset_versions"
            " (id, dataset_id, number, state, reader, location, options, shares, seed)"
            " VALUES (:id, :dataset, 1, 'ready', 'npz', '/x', '{}', '{}', 0)",
            id=data,
            dataset=dataset,
        )
        self._run(
            "INSERT INTO models (id, name, description, created_by) VALUES (:id, 'net', '', 'me')", id=model
        )
        self._run(
            "INSERT INTO model_versions (id, model_id, number, state, origin, dataset_version_id,"
            " architecture, figures) VALUES (:id, :model, 1, 'ready', 'trained', :data, '{}', '{}')",
            id=self.version,
            model=model,
            data=data,
        )
        self.add_job(self.over, "reference", "done", 1)
        self.add_job(self.live, "reference", "running", 2)
        self.add_job(self.waiting, "unlearn", "waiting", 3)
        self.add_job(uuid.uuid4(), "unlearn", "running", 4)
        self._run("UPDATE jobs SET waits_for = :other WHERE id = :id", other=self.live, id=self.waiting)
        self._run(
            "INSERT INTO reference_networks (id, version_id, rows_digest, job_id, weights, seconds, figures)"
            " VALUES (:id, :version, 'rows', :job, 'first', 1, '{}')",
            id=uuid.uuid4(),
            version=self.version,
            job=self.over,
        )
        connection.commit()

    def add_job(self, job_id: uuid.UUID, kind: str, state: str, number: int, **more: object) -> None:
        columns = "".join(f", {name}" for name in more)
        values = "".join(f", :{name}" for name in more)
        self._run(
            "INSERT INTO jobs (id, kind, state, parameters, seed, queue, attempt, max_attempts, lease_token,"
            f" created_by, settled_at{columns}) VALUES (:id, :kind, :state, '{{\"recipe\": 1}}', :number,"
            f" 'jobs', 1, 5, 1, 'me', CASE WHEN :over THEN now() END{values})",
            id=job_id,
            kind=kind,
            state=state,
            number=number,
            over=state == "done",
            **more,
        )

    def add_second(self) -> None:
        """A second reference of the same rows, for which the waiting job has waited as well."""
        second = uuid.uuid4()
        self.add_job(second, "reference", "done", 0, has_waited=False)
        self._run("INSERT INTO job_waits VALUES (:job, :other)", job=self.waiting, other=second)
        self._run(
            "INSERT INTO reference_networks"
            " (id, version_id, rows_digest, number, job_id, weights, seconds, figures)"
            " VALUES (:id, :version, 'rows', 1, :job, 'second', 1, '{}')",
            id=uuid.uuid4(),
            version=self.version,
            job=second,
        )

    def tell(self, number: int, outcome: str) -> None:
        """A job's outcome, as JSON."""
        told = "UPDATE jobs SET outcome = CAST(:outcome AS jsonb) WHERE seed = :number"
        self._run(told, outcome=outcome, number=number)
        self._connection.commit()

    def _run(self, statement: str, **values: object) -> None:
        self._connection.execute(text(statement), values)


@pytest.fixture
def old(connection: Connection, move: Move) -> _Old:
    """A database of before."""
    return _Old(connection, move)


@pytest.mark.usefixtures("old")
def test_what_waits_goes_on_waiting(connection: Connection, move: Move) -> None:
    """For a set of one; the mark that a job has waited is where it was implied."""
    move(_AFTER)
    assert rows_of(connection, _WAITS) == [(3, 2)]
    assert rows_of(connection, _WAITED) == [(3,)]


@pytest.mark.usefixtures("old")
def test_references_are_numbered(connection: Connection, move: Move) -> None:
    """Those that there are, and those that jobs are about to add; other jobs keep their parameters."""
    move(_AFTER)
    assert rows_of(connection, "SELECT number, weights FROM reference_networks") == [(0, "first")]
    numbered = [{"recipe": 1, "number": 0}] * 2
    found = rows_of(connection, "SELECT parameters FROM jobs ORDER BY seed")
    assert [parameters for (parameters,) in found] == [*numbered, *[{"recipe": 1}] * 2]


def test_the_way_back_leaves_one_of_each(connection: Connection, move: Move, old: _Old) -> None:
    """The first reference of its rows; and of what a job waits for, one that is not over."""
    move(_AFTER)
    old.add_second()
    move(_BEFORE)
    waits = "SELECT job.seed, other.seed FROM jobs AS job JOIN jobs AS other ON other.id = job.waits_for"
    assert rows_of(connection, waits) == [(3, 2)]
    assert rows_of(connection, "SELECT weights FROM reference_networks") == [("first",)]
    assert {str(row[0]) for row in rows_of(connection, "SELECT parameters FROM jobs")} == {"{'recipe': 1}"}


def test_outcomes_name_the_reference_in_a_list_and_back(
    connection: Connection, move: Move, old: _Old
) -> None:
    """What waits for approval can be published on either side; outcomes of other jobs stay as they are."""
    outcomes = {3: '{"spec": {"reference": "w", "seed": 1}}', 4: '{"spec": {"reference": null}}'}
    for seed, outcome in outcomes.items():
        old.tell(seed, outcome)
    query = "SELECT outcome FROM jobs WHERE seed > 1 ORDER BY seed"
    move(_AFTER)
    after: list[object] = [None, {"spec": {"references": ["w"], "seed": 1}}, {"spec": {"references": []}}]
    assert [outcome for (outcome,) in rows_of(connection, query)] == after
    move(_BEFORE)
    before: list[object] = [None, {"spec": {"reference": "w", "seed": 1}}, {"spec": {"reference": None}}]
    assert [outcome for (outcome,) in rows_of(connection, query)] == before
