"""What the database says of blobs: which it needs, what the others once were, and forgetting those."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    SQLColumnExpression,
    Text,
    any_,
    cast,
    delete,
    func,
    literal,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONPATH
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.tables import (
    Artefact,
    DatasetVersion,
    Job,
    Model,
    ModelVersion,
    ReferenceNetwork,
    Report,
    ShadowNetwork,
    VersionState,
)

_ANY_DIGEST = '$.** ? (@ like_regex "^[0-9a-f]{64}$")'
_WITHOUT_WEIGHTS = (VersionState.FAILED, VersionState.PURGED)


def _references() -> Mapping[str, Select[Any]]:
    """Everything that needs blobs, and their digests. Whatever keeps a digest of a blob has a line here."""
    unsettled = Job.settled_at.is_(None)
    kept = ModelVersion.state.not_in(_WITHOUT_WEIGHTS)
    return {
        "model versions": select(ModelVersion.weights).where(kept),
        "memorisation of model versions": select(_proxy_in(ModelVersion.figures)).where(kept),
        "trajectories of model versions": select(_digests_in(ModelVersion.figures["trajectory"])).where(kept),
        "estimates of memorisation": select(
            func.jsonb_extract_path_text(ModelVersion.figures, "memorisation", "estimate", "scores")
        ).where(kept),
        "shadow networks": select(ShadowNetwork.weights)
        .join(ModelVersion, ModelVersion.id == ShadowNetwork.version_id)
        .join(Model, Model.id == ModelVersion.model_id)
        .where(kept, Model.retired_at.is_(None)),
        "reference networks": select(ReferenceNetwork.weights),
        "memorisation of reference networks": select(_proxy_in(ReferenceNetwork.figures)),
        "trajectories of reference networks": select(_digests_in(ReferenceNetwork.figures["trajectory"])),
        "data sets": select(DatasetVersion.manifest),
        "reports": select(_digests_in(Report.blobs)),
        "parameters of unfinished jobs": select(_digests_in(Job.parameters)).where(unsettled),
        "checkpoints of unfinished jobs": select(_digests_in(Job.checkpoint)).where(unsettled),
        "results of unfinished jobs": select(_digests_in(Job.outcome)).where(unsettled),
    }


def needed(session: Session, digests: Collection[str]) -> Mapping[str, str]:
    """Which of these blobs the database needs, and for what.

    One statement, and so one moment: a digest that another transaction moves from a job to a version is
    found in one of the two.
    """
    references = union_all(
        *(
            select(literal(what).label("what"), found.subquery().columns[0].label("digest"))
            for what, found in _references().items()
        )
    ).subquery()
    query = select(references.c.digest, references.c.what).where(_among(references.c.digest, digests))
    return dict(session.execute(query).all())


def origins(session: Session, digests: Collection[str]) -> Mapping[str, str]:
    """What jobs said of these blobs when they made them, of which a blob may have several makers."""
    query = select(Artefact.digest, Artefact.name, Job.state).join(Job, Job.id == Artefact.job_id)
    rows = session.execute(query.where(_among(Artefact.digest, digests)).order_by(Job.ordinal))
    return {digest: f"{name} of jobs that are {state}" for digest, name, state in rows}


def forget(session: Session, digests: Collection[str]) -> None:
    """Remove what finished jobs said of these blobs; an unfinished one may just be storing one again."""
    finished = select(Job.id).where(Job.settled_at.is_not(None))
    session.execute(
        delete(Artefact).where(_among(Artefact.digest, digests), Artefact.job_id.in_(finished)),
        execution_options={"synchronize_session": False},
    )


def _digests_in(document: ColumnElement[Any] | InstrumentedAttribute[Any]) -> ColumnElement[str]:
    """Every string in a JSON document, at any depth, that looks like a digest: a row each."""
    found = func.jsonb_path_query(document, cast(_ANY_DIGEST, JSONPATH))
    return found.op("#>>")(literal([], ARRAY(Text)))  # as text, without its quotes


def _proxy_in(figures: InstrumentedAttribute[Any]) -> ColumnElement[str]:
    """The blob of confidences that a training recorded, if it did."""
    return func.jsonb_extract_path_text(figures, "memorisation", "proxy")


def _among(column: SQLColumnExpression[str], digests: Collection[str]) -> ColumnElement[bool]:
    return column == any_(literal(list(digests), ARRAY(Text)))
