"""The wish for a reference becomes a budget of one training, wherever it stands, and back."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import Connection, text

from tests.migrations.databases import Move, rows_of

_BEFORE, _AFTER = "5d1f3b8c7a20", "2c7e94d05ab1"


@pytest.fixture
def old(connection: Connection, move: Move) -> None:
    """Two requests, two policies and three jobs, one of which has no policy."""
    move(_BEFORE)
    caller, model = uuid.uuid4(), uuid.uuid4()
    values = {"caller": caller, "model": model}

    def add(statement: str, **more: object) -> None:
        connection.execute(text(statement), {**values, "id": uuid.uuid4(), **more})

    add(
        "INSERT INTO api_keys (id, name, prefix, digest, scopes, created_by)"
        " VALUES (:caller, 'me', 'x', '\\x00', '{}', 'me')"
    )
    add("INSERT INTO models (id, name, description, created_by) VALUES (:model, 'net', '', 'me')")
    for number, wanted in enumerate((False, True), 1):
        add(
            "INSERT INTO deletion_requests"
            " (id, caller_id, regulation, state, reference, item_count, matched_count, due_at)"
            " VALUES (:id, :caller, 'gdpr', 'received', :wanted, :number, 1, now())",
            wanted=wanted,
            number=number,
        )
        add(
            "INSERT INTO policy_versions (id, model_id, number, body, created_by) VALUES (:id, :model,"
            " :number, jsonb_build_object('due_days', 7, 'reference', CAST(:wanted AS boolean)), 'me')",
            wanted=wanted,
            number=number,
        )
        _add_job(connection, f"jsonb_build_object('due_days', 7, 'reference', {wanted})", number)
    _add_job(connection, "NULL", 3)
    connection.commit()


def _add_job(connection: Connection, policy: str, number: int) -> None:
    connection.execute(
        text(
            "INSERT INTO jobs (id, kind, state, parameters, seed, queue, attempt, max_attempts, lease_token,"
            " created_by, policy)"
            f" VALUES (:id, 'unlearn', 'done', '{{}}', :number, 'jobs', 1, 5, 1, 'me', {policy})"
        ),
        {"id": uuid.uuid4(), "number": number},
    )


_REQUESTS = "SELECT {} FROM deletion_requests ORDER BY item_count"
_POLICIES = "SELECT body FROM policy_versions ORDER BY number"
_JOBS = "SELECT policy FROM jobs ORDER BY seed"


@pytest.mark.usefixtures("old")
def test_a_wish_becomes_a_budget_of_one(connection: Connection, move: Move) -> None:
    """In requests, in policies and in the copies that jobs carry; nothing else of them changes."""
    move(_AFTER)
    policies = [{"due_days": 7, "audit_budget": 0}, {"due_days": 7, "audit_budget": 1}]
    assert rows_of(connection, _REQUESTS.format("audit_budget")) == [(0,), (1,)]
    assert [body for (body,) in rows_of(connection, _POLICIES)] == policies
    assert [body for (body,) in rows_of(connection, _JOBS)] == [*policies, None]


@pytest.mark.usefixtures("old")
def test_the_way_back_makes_a_wish_of_any_budget(connection: Connection, move: Move) -> None:
    """Of seven trainings as of one."""
    move(_AFTER)
    connection.execute(text("UPDATE deletion_requests SET audit_budget = 7 * audit_budget"))
    connection.execute(
        text("UPDATE policy_versions SET body = body || '{\"audit_budget\": 7}' WHERE number = 2")
    )
    move(_BEFORE)
    policies = [{"due_days": 7, "reference": False}, {"due_days": 7, "reference": True}]
    assert rows_of(connection, _REQUESTS.format("reference")) == [(False,), (True,)]
    assert [body for (body,) in rows_of(connection, _POLICIES)] == policies
    assert [body for (body,) in rows_of(connection, _JOBS)] == [*policies, None]
