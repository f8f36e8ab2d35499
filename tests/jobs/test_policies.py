"""What a policy may say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.jobs.policies import POLICY, Policy, reported_policy


def test_a_policy_survives_storage() -> None:
    """Written as JSON and read again it is the same."""
    policy = POLICY.validate_python({"thresholds": {"auc_margin": 0.1}, "ladder": [{"method": "retrain"}]})
    assert POLICY.validate_json(POLICY.dump_json(policy)) == policy
    assert POLICY.validate_python(POLICY.dump_python(policy, mode="json")) == policy


def test_the_default_ends_in_an_exact_method() -> None:
    """And publishes what did not fail, where the attack could have found something."""
    assert [rung.method for rung in Policy().ladder] == ["neggrad", "retrain"]
    assert Policy().publish_when == "not_failed"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ladder", []),
        ("ladder", [{"method": "retrain"}] * 11),
        ("publish_when", "always"),
        ("batch_window_seconds", -1),
        ("batch_window_seconds", float("nan")),
        ("batch_window_seconds", float("inf")),
        ("batch_max", 0),
        ("audit_budget", -1),
        ("audit_budget", 65),
        ("reference", True),
        ("due_days", 0),
        ("due_days", 366),
        ("thresholds", {"auc_margin": 0}),
        ("thresholds", {"significance": float("nan")}),
        ("colour", "blue"),
    ],
)
def test_a_policy_out_of_range_is_refused(field: str, value: Any) -> None:
    """Each field has its limits, and there are no others."""
    with pytest.raises(ValidationError) as found:
        POLICY.validate_python({field: value})
    assert {str(error["loc"][0]) for error in found.value.errors()} == {field}


@pytest.mark.parametrize(("wanted", "budget"), [(False, 0), (True, 1)])
def test_an_old_reports_policy_can_still_be_read(wanted: bool, budget: int) -> None:
    """What it says of a reference is a budget of one training, and its other fields are as they were."""
    assert reported_policy({"reference": wanted, "due_days": 7}) == Policy(audit_budget=budget, due_days=7)


@pytest.mark.parametrize(
    "body", [{"reference": True, "audit_budget": 1}, {"reference": "much"}, {"colour": "blue"}]
)
def test_no_other_policy_is_taken_for_an_old_one(body: dict[str, Any]) -> None:
    """A report that was tampered with has no valid policy."""
    with pytest.raises(ValidationError):
        reported_policy(body)
