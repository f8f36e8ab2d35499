"""What all tables share: naming, column types, and states that change only along drawn lines."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from sqlalchemy import BigInteger, Enum, Identity, Index, MetaData, Text, func
from sqlalchemy.dialects.postgresql import BYTEA, JSONB, TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, object_session

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

Json = dict[str, Any]
Id = Annotated[uuid.UUID, mapped_column(primary_key=True, default=uuid.uuid4)]
Ordinal = Annotated[int, mapped_column(BigInteger, Identity(always=True), unique=True)]
CreatedAt = Annotated[datetime, mapped_column(server_default=func.now())]


class Base(DeclarativeBase):
    """The declarative base; times are always with time zone, JSON is always binary."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        bytes: BYTEA,
        datetime: TIMESTAMP(timezone=True),
        Json: JSONB,
        list[Any]: JSONB,
    }


class AuditEntry(Base):
    """One change, by whom and why. Append-only; the sealer fills the two hashes later."""

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[CreatedAt]
    actor: Mapped[str]
    action: Mapped[str]
    entity: Mapped[str]
    entity_id: Mapped[str]
    reason: Mapped[str | None]
    facts: Mapped[Json] = mapped_column(default=dict)
    previous_hash: Mapped[bytes | None] = mapped_column(unique=True)
    hash: Mapped[bytes | None] = mapped_column(unique=True)

    __table_args__ = (Index(None, "entity", "entity_id"),)


class IllegalTransition(Exception):
    """The row is in a state that does not allow this change."""

    def __init__(self, row: Stateful, to: StrEnum) -> None:
        self.current = row.state
        super().__init__(f"{type(row).__name__} is {row.state} and cannot become {to}")


class Stateful:
    """A row whose `state` moves along `MOVES`; each move leaves a row in the audit log."""

    MOVES: ClassVar[Mapping[Any, frozenset[Any]]]
    id: Mapped[Id]
    state: Any
    reason: Mapped[str | None]

    @property
    def is_final(self) -> bool:
        """Whether no further change is possible."""
        return not self.MOVES[self.state]

    def _move(self, to: StrEnum, *, actor: str, reason: str | None = None) -> None:
        if to not in self.MOVES[self.state]:
            raise IllegalTransition(self, to)
        before, self.state, self.reason = self.state, to, reason
        self._record(f"{before}->{to}", actor=actor, reason=reason)

    def _record(self, action: str, *, actor: str, reason: str | None) -> None:
        session = object_session(self)
        if session is None:
            raise RuntimeError("a state may change only inside a session, where the change is logged")
        entity = type(self).__name__
        session.add(
            AuditEntry(
                actor=actor, action=action, entity=entity, entity_id=str(self.id), reason=reason, facts={}
            )
        )


def state_type(states: type[StrEnum]) -> Enum:
    """A text column that holds one of `states`, by a check constraint."""
    return Enum(
        states,
        native_enum=False,
        create_constraint=True,
        length=32,
        name=states.__name__.lower(),
        values_callable=lambda members: [member.value for member in members],
    )


def moves(lines: Mapping[Any, tuple[Any, ...]], states: type[StrEnum]) -> dict[Any, frozenset[Any]]:
    """The full transition table: states without a line out are final."""
    return {state: frozenset(lines.get(state, ())) for state in states}
