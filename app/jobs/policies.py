"""The policy of a model: which methods in which order, what counts as forgotten, when to publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from app.jobs.budget import AuditBudget

_STRICT = ConfigDict(extra="forbid")
PublishWhen = Literal["passed", "not_failed", "approved"]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What counts as forgotten and as still useful. Fixed before a job runs; margins are policy, not science.

    `auc_margin`: |AUC - expected| that is too small to matter. `forget_margin`, `utility_margin`: accuracy
    differences (as shares) that are too small to matter. `significance`: family-wise error of a `fail`.
    `class_distance`: the largest total-variation distance of class shares at which F and H are comparable.
    `relearning_factor`: how much faster or slower than a retrained network it may relearn F and still pass.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    auc_margin: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    forget_margin: Annotated[float, Field(gt=0, lt=1)] = 0.05
    utility_margin: Annotated[float, Field(gt=0, lt=1)] = 0.02
    significance: Annotated[float, Field(gt=0, lt=0.5)] = 0.01
    class_distance: Annotated[float, Field(gt=0, le=1)] = 0.1
    relearning_factor: Annotated[float, Field(gt=1, le=1_000)] = 2.0


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One method of the ladder and its parameters."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def _default_ladder() -> tuple[Rung, ...]:
    """The cheapest that was measured, retraining after a failure included (docs/results.md)."""
    return (Rung(method="neggrad"), Rung(method="retrain"))


@dataclass(frozen=True, kw_only=True)
class Policy:
    """An immutable, numbered policy of a model; every job carries the copy it was started under.

    `audit_budget`: how many trainings the audit may spend on networks to compare with (`app.jobs.budget`).
    `prefer_exact`: when one was retrained, publish it rather than the approximate network it judged.
    `batch_window_seconds`, `batch_max`: requests of one model that arrive within the window, or until so many
    wait, are carried out by one job. `due_days`: the time a request has when it names no due date.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    ladder: Annotated[tuple[Rung, ...], Field(min_length=1, max_length=10)] = field(
        default_factory=_default_ladder
    )
    thresholds: Thresholds = field(default_factory=Thresholds)
    publish_when: PublishWhen = "not_failed"
    audit_budget: AuditBudget = 0
    prefer_exact: bool = True
    batch_window_seconds: Annotated[float, Field(ge=0, le=90 * 86_400)] = 2.0
    batch_max: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    due_days: Annotated[int, Field(ge=1, le=365)] = 30


POLICY: TypeAdapter[Policy] = TypeAdapter(Policy)


def reported_policy(body: Mapping[str, Any]) -> Policy:
    """The policy in a report, which is signed and never changes.

    Those from before there were budgets say whether a reference was wanted: a budget of one training.

    Raises:
        pydantic.ValidationError: it is none.
    """
    known = dict(body)
    if "audit_budget" not in known and "reference" in known:
        known["audit_budget"] = known.pop("reference")
    return POLICY.validate_python(known)
