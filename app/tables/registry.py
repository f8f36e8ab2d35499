"""Models, their versions, the aliases that name one of them, their policies; references and shadows."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, CreatedAt, Id, Json, Ordinal, Stateful, moves, state_type


class Model(Base):
    """A named, registered network; what it is at a time is in its versions."""

    __tablename__ = "models"

    id: Mapped[Id]
    ordinal: Mapped[Ordinal]
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str]
    created_at: Mapped[CreatedAt]
    created_by: Mapped[str]
    retired_at: Mapped[datetime | None]


class VersionState(StrEnum):
    """Of one model version."""

    VALIDATING = "validating"
    READY = "ready"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    PURGED = "purged"


class ModelVersion(Stateful, Base):
    """Architecture, weights, the rows they were trained on, the recipe, and the version they came from."""

    __tablename__ = "model_versions"
    MOVES: ClassVar = moves(
        {
            VersionState.VALIDATING: (VersionState.READY, VersionState.FAILED),
            VersionState.READY: (VersionState.SUPERSEDED,),
            VersionState.SUPERSEDED: (VersionState.READY, VersionState.PURGED),
        },
        VersionState,
    )

    id: Mapped[Id]
    ordinal: Mapped[Ordinal]
    model_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    state: Mapped[VersionState] = mapped_column(state_type(VersionState), default=VersionState.READY)
    reason: Mapped[str | None]
    origin: Mapped[str]  # trained, unlearned, retrained or uploaded
    parent_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    job_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("jobs.id", use_alter=True))
    dataset_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("dataset_versions.id"))
    rows_digest: Mapped[str | None] = mapped_column(ForeignKey("row_sets.digest"))  # None: not found out yet
    architecture: Mapped[Json]
    recipe: Mapped[Json | None]
    weights: Mapped[str | None]
    figures: Mapped[Json]
    faults: Mapped[list[Any] | None]  # what validation found wrong with an upload
    created_at: Mapped[CreatedAt]

    __table_args__ = (UniqueConstraint("model_id", "number"),)

    def become_ready(self, *, actor: str) -> None:
        """The uploaded weights fit their architecture and were measured."""
        self._move(VersionState.READY, actor=actor)

    def fail(self, reason: str, *, actor: str) -> None:
        """The uploaded weights cannot be used; `reason` says why."""
        self._move(VersionState.FAILED, actor=actor, reason=reason)

    def supersede(self, *, actor: str) -> None:
        """The last alias moved on to another version."""
        self._move(VersionState.SUPERSEDED, actor=actor)

    def reinstate(self, *, actor: str) -> None:
        """An alias names it again."""
        self._move(VersionState.READY, actor=actor)


class Alias(Base):
    """A movable name for one version of a model; `revision` counts the moves."""

    __tablename__ = "aliases"

    model_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("models.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"), index=True)
    revision: Mapped[int] = mapped_column(default=1)
    updated_at: Mapped[CreatedAt]


class PolicyVersion(Base):
    """An immutable policy (app.jobs.policies.Policy) of a model; the highest number is in force."""

    __tablename__ = "policy_versions"

    id: Mapped[Id]
    model_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    body: Mapped[Json]
    created_at: Mapped[CreatedAt]
    created_by: Mapped[str]

    __table_args__ = (UniqueConstraint("model_id", "number"),)


class ReferenceNetwork(Base):
    """Retrained on exactly the rows that remain: the audit's yardstick, and an exact rung itself.

    An audit may have several of the same rows, each with a number and a seed of its own.
    """

    __tablename__ = "reference_networks"

    id: Mapped[Id]
    version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"))
    rows_digest: Mapped[str] = mapped_column(ForeignKey("row_sets.digest"))
    number: Mapped[int]
    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.id"))
    weights: Mapped[str]
    seconds: Mapped[float]
    figures: Mapped[Json]
    created_at: Mapped[CreatedAt]

    __table_args__ = (Index(None, "version_id", "rows_digest", "number", unique=True),)


class ShadowNetwork(Base):
    """Trained by a version's recipe on a random share of its rows: what it says of the others is unlearned.

    A pool is all of a version's shadows of one share, each with a number. Those trained on a row that was
    deleted since are in no estimate (`app.registry.shadows`).
    """

    __tablename__ = "shadow_networks"

    id: Mapped[Id]
    version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"))
    share: Mapped[float]
    number: Mapped[int]
    rows_digest: Mapped[str] = mapped_column(ForeignKey("row_sets.digest"))  # what it was trained on
    candidates_digest: Mapped[str] = mapped_column(ForeignKey("row_sets.digest"))  # what that was drawn from
    correct_digest: Mapped[str] = mapped_column(
        ForeignKey("row_sets.digest")
    )  # those that it classifies right
    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.id"))
    weights: Mapped[str]
    figures: Mapped[Json]
    created_at: Mapped[CreatedAt]

    __table_args__ = (Index(None, "version_id", "share", "number", unique=True),)
