"""Policies are checked as a whole, numbered and never changed."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import Invalid
from app.jobs.params import NegGrad, plain_data
from app.jobs.policies import POLICY
from app.registry import policies
from app.tables import PolicyVersion
from tests.fixtures.world import World


def _faults(world: World, **policy: Any) -> dict[str, str]:
    model = world.model()
    with pytest.raises(Invalid) as found:
        policies.set_policy(world.session, model, POLICY.validate_python(policy), actor="desk", at="/policy")
    return {fault.pointer: fault.detail for fault in found.value.faults}


def test_the_newest_policy_is_in_force(world: World) -> None:
    """Setting a policy adds a numbered version and leaves the former as it was."""
    model = world.model()
    former = policies.in_force(world.session, model.id)
    body = dict(former.body)
    policies.set_policy(world.session, model, POLICY.validate_python({"due_days": 7}), actor="desk")
    newest = policies.in_force(world.session, model.id)
    assert (newest.number, newest.body["due_days"], newest.created_by) == (2, 7, "desk")
    assert world.session.get_one(PolicyVersion, former.id).body == body


def test_a_policy_spells_out_every_parameter(world: World) -> None:
    """Defaults of a later release change no policy that was set before."""
    ladder = policies.in_force(world.session, world.model().id).body["ladder"]
    assert [rung["method"] for rung in ladder] == ["neggrad", "retrain"]
    assert ladder[0]["parameters"] == plain_data(NegGrad())


def test_every_fault_of_every_rung_is_named_at_once(world: World) -> None:
    """Values out of range, unknown parameters and methods, and a last rung that is not exact."""
    ladder = [
        {"method": "sharp_minmax", "parameters": {"rho": -0.5, "alpha": 2}},
        {"method": "magic"},
        {"method": "finetune", "parameters": {"colour": 1}},
    ]
    assert set(_faults(world, ladder=ladder)) == {
        "/policy/ladder/0/parameters/rho",
        "/policy/ladder/0/parameters/alpha",
        "/policy/ladder/1/method",
        "/policy/ladder/2/parameters/colour",
        "/policy/ladder",
    }


def test_an_unknown_method_is_refused_with_the_known_ones(world: World) -> None:
    """The fault lists what there is and does not repeat what was sent."""
    faults = _faults(world, ladder=[{"method": "secret-method"}])
    assert "sharp_minmax" in faults["/policy/ladder/0/method"]
    assert "secret-method" not in str(faults)


def test_a_ladder_ends_in_an_exact_method(world: World) -> None:
    """Otherwise a request might never be carried out."""
    faults = _faults(world, ladder=[{"method": "retrain"}, {"method": "finetune"}])
    assert set(faults) == {"/policy/ladder"}


def test_a_refused_policy_changes_nothing(world: World) -> None:
    """The policy in force stays."""
    _faults(world, ladder=[{"method": "finetune"}])
    assert world.counts()["policy_versions"] == 1


def test_whoever_set_a_policy_is_in_the_audit_log(world: World) -> None:
    """A policy decides what is published, so its author is on record."""
    model = world.model()
    version = policies.set_policy(world.session, model, POLICY.validate_python({}), actor="desk")
    assert world.changes(version.id) == [("desk", "set", None)]
