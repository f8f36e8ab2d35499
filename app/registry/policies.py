"""Policies: checked as a whole when set, numbered, never changed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from app.errors import Fault, Invalid, faults_of
from app.events import service as events
from app.jobs.params import METHODS, method_parameters, plain_data
from app.jobs.policies import POLICY, Policy, Rung
from app.tables import Model, PolicyVersion


def set_policy(session: Session, model: Model, policy: Policy, *, actor: str, at: str = "") -> PolicyVersion:
    """A new version of the model's policy, every parameter spelled out. Raises Invalid."""
    complete = _checked(policy, at)
    last = session.scalar(select(func.max(PolicyVersion.number)).filter_by(model_id=model.id))
    version = PolicyVersion(
        id=uuid.uuid4(),
        model_id=model.id,
        number=(last or 0) + 1,
        body=POLICY.dump_python(complete, mode="json"),
        created_by=actor,
    )
    session.add(version)
    session.flush()
    events.record(
        session,
        actor=actor,
        action="set",
        entity="PolicyVersion",
        entity_id=version.id,
        number=version.number,
    )
    return version


def in_force(session: Session, model_id: uuid.UUID) -> PolicyVersion:
    """The model's newest policy; every model has one."""
    query = select(PolicyVersion).filter_by(model_id=model_id).order_by(PolicyVersion.number.desc()).limit(1)
    return session.scalars(query).one()


def bodies_in_force(session: Session, model_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, dict[str, Any]]:
    """The newest policy of each of these models."""
    query = (
        select(PolicyVersion.model_id, PolicyVersion.body)
        .where(PolicyVersion.model_id.in_(model_ids))
        .ext(distinct_on(PolicyVersion.model_id))
        .order_by(PolicyVersion.model_id, PolicyVersion.number.desc())
    )
    return dict(session.execute(query).all())


def _checked(policy: Policy, at: str) -> Policy:
    faults: list[Fault] = []
    rungs = [checked_rung(rung, f"{at}/ladder/{index}", faults) for index, rung in enumerate(policy.ladder)]
    last = METHODS.get(policy.ladder[-1].method)
    if last is not None and not last.exact:
        faults.append(Fault(pointer=f"{at}/ladder", detail="the last rung must be an exact method: retrain"))
    if faults:
        raise Invalid(faults=faults)
    return replace(policy, ladder=tuple(rungs))


def checked_rung(rung: Rung, at: str, faults: list[Fault]) -> Rung:
    """The rung with every parameter spelled out; what is wrong with it is added to `faults`."""
    if rung.method not in METHODS:
        known = ", ".join(METHODS)
        faults.append(Fault(pointer=f"{at}/method", detail=f"no such method; there are: {known}"))
        return rung
    try:
        return replace(rung, parameters=plain_data(method_parameters(rung.method, rung.parameters)))
    except ValidationError as error:
        faults += faults_of(error, f"{at}/parameters")
        return rung
