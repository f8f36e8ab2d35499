"""Trying methods on a version before anything is deleted: comparisons, and probes."""

from __future__ import annotations

import random

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.matching import Matches, Named
from app.errors import FAULTS_SHOWN, Conflict, Fault, Faults
from app.jobs import service as jobs
from app.jobs.params import METHODS
from app.registry import memorisation, policies, references, service
from app.registry.schemas import NewComparison, PoisonedRows, RandomRows, RowsById, TierRows
from app.registry.tiers import NoTiers
from app.tables import Job, JobKind, JobState, Model, ModelVersion
from models_store.rows import RowSet

_PROBE_STEPS = 20  # of each trial


def start(session: Session, model: Model, version: ModelVersion, new: NewComparison, *, actor: str) -> Job:
    """Queue a comparison. Nothing is deleted or published by it.

    Raises:
        Invalid: a method or its parameters are wrong, a sample is not among the version's rows, or no row
            would remain, or tiers would share rows; all faults are named.
        Conflict: the model was retired, the version cannot be retrained, or no score tells its tiers apart.
    """
    service.refuse_retired(model)
    if version.weights is None or version.recipe is None:
        raise Conflict("Only on a version with weights and a training recipe can methods be compared.")
    faults = Faults()
    methods = _methods(new, faults)
    held = service.rows_of(session, version)
    forget, said = _forget(session, version, held, new, faults)
    retain = held - forget - row_sets.tombstoned(session, version.dataset_version_id)
    if not faults.count and not (len(forget) and len(retain)):
        faults.add("/forget", "leaves no row to forget, or none that remains")
    faults.raise_any()
    job = Job(
        kind=JobKind.COMPARE,
        model_id=model.id,
        version_id=version.id,
        dataset_version_id=version.dataset_version_id,
        parameters={
            "methods": methods,
            "seeds": new.seeds,
            "forget": said,
            "thresholds": policies.in_force(session, model.id).body["thresholds"],
        },
        forget_digest=row_sets.keep(session, forget),
        rows_digest=row_sets.keep(session, retain),
        seed=new.seed,
        created_by=actor,
    )
    return jobs.queue(session, job)


def ask_for_reference(session: Session, job: Job, *, actor: str) -> list[Job]:
    """The job that trains the reference of a comparison; none if it is there."""
    if job.rows_digest is None:
        raise ValueError("a comparison names its rows")
    version = session.get_one(ModelVersion, job.version_id)
    return references.ask(session, version, row_sets.read(session, job.rows_digest), 1, actor=actor)


def probe_of(session: Session, version: ModelVersion, forget: RowSet) -> Job | None:
    """The newest probe of forgetting these rows from the version, unless it failed or was cancelled."""
    query = select(Job).where(
        Job.kind == JobKind.PROBE,
        Job.version_id == version.id,
        Job.forget_digest == forget.digest,
        Job.state.not_in((JobState.FAILED, JobState.CANCELLED)),
    )
    return session.scalar(query.order_by(Job.ordinal.desc()).limit(1))


def start_probe(session: Session, version: ModelVersion, forget: RowSet, *, actor: str) -> Job | None:
    """Queue a probe; None if the version has no weights, or no row would remain."""
    deleted = row_sets.tombstoned(session, version.dataset_version_id)
    retain = service.rows_of(session, version) - forget - deleted
    if version.weights is None or not len(retain):
        return None
    job = Job(
        kind=JobKind.PROBE,
        model_id=version.model_id,
        version_id=version.id,
        dataset_version_id=version.dataset_version_id,
        parameters={
            "steps": _PROBE_STEPS,
            "thresholds": policies.in_force(session, version.model_id).body["thresholds"],
        },
        forget_digest=row_sets.keep(session, forget),
        rows_digest=row_sets.keep(session, retain),
        seed=0,
        created_by=actor,
    )
    return jobs.queue(session, job)


def _methods(new: NewComparison, faults: Faults) -> list[dict[str, object]]:
    """The methods with every parameter spelled out."""
    found: list[Fault] = []
    rungs = [
        policies.checked_rung(rung, f"/methods/{place}", found) for place, rung in enumerate(new.methods)
    ]
    for fault in found:
        faults.add(fault.pointer, fault.detail)
    for place, rung in enumerate(rungs):
        if rung.method in METHODS and METHODS[rung.method].exact:
            faults.add(f"/methods/{place}/method", "is exact: the others are compared with it anyway")
    return [{"method": rung.method, "parameters": dict(rung.parameters)} for rung in rungs]


def _forget(
    session: Session, version: ModelVersion, held: RowSet, new: NewComparison, faults: Faults
) -> tuple[RowSet, dict[str, object]]:
    """The rows to be forgotten, and how they were chosen, without a name."""
    wanted = new.forget
    if isinstance(wanted, RandomRows):
        return _drawn(held, wanted), wanted.model_dump()
    if isinstance(wanted, TierRows):
        try:
            rows, basis = memorisation.rows_of_tier(session, version, wanted)
        except NoTiers as reason:
            faults.add("/forget/share", str(reason))
            return RowSet(b""), {}
        return rows, {**wanted.model_dump(), "by": basis}
    if isinstance(wanted, PoisonedRows):
        return _poisoned(session, version, held, faults), wanted.model_dump()
    rows = _named(session, version, held, wanted, faults)
    return rows, {"samples": len(rows)}


def _drawn(held: RowSet, wanted: RandomRows) -> RowSet:
    ordinals = list(held)
    count = max(1, round(wanted.share * len(ordinals))) if ordinals else 0
    return RowSet.of(random.Random(wanted.seed).sample(ordinals, count))


def _poisoned(session: Session, version: ModelVersion, held: RowSet, faults: Faults) -> RowSet:
    """Those of the version's rows that are poisoned."""
    dataset = datasets.get_version(session, version.dataset_version_id)
    if dataset.poison is None:
        faults.add("/forget/poisoned", "the version was not trained on a poisoned data set")
    return held & row_sets.poisoned(session, dataset)


def _named(session: Session, version: ModelVersion, held: RowSet, wanted: RowsById, faults: Faults) -> RowSet:
    """The rows of named samples, which have to be among the version's."""
    matches = Matches(session)
    matches.add([Named(place, None, name, None) for place, name in enumerate(wanted.sample_ids)])
    home = datasets.get_version(session, version.dataset_version_id).dataset_id
    matches.find_in([(version.dataset_version_id, home)])
    count, places = matches.unmatched(FAULTS_SHOWN)
    pointers = (f"/forget/sample_ids/{place}" for place in places)
    faults.add_counted(count, pointers, "the data set version has no such sample")
    named = matches.rows_of(version.dataset_version_id)
    if len(named - held):
        faults.add("/forget/sample_ids", f"{len(named - held)} of the samples did not train this version")
    return named & held
