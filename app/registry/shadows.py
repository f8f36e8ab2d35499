"""Pools of shadows: networks trained by a version's recipe on random shares of its rows and held-out ones.

A pool only ever grows, a job a network, so that what was trained once serves every later question. Shadows
that were trained on a row which has been deleted since are left out of every estimate, and discarded when
the pool is asked for again or when the version is no longer in use. Those that were not are what they were:
random shares of the other rows.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.errors import Conflict, Fault, Invalid
from app.events import service as events
from app.jobs import service as jobs
from app.registry import service
from app.registry.schemas import NewShadows, Pool
from app.tables import Job, JobKind, JobState, Model, ModelVersion, RowBits, ShadowNetwork, VersionState
from app.tables.jobs import LIVE
from models_store.rows import RowSet

_USABLE = (VersionState.READY, VersionState.SUPERSEDED)
_NONE = RowSet(b"")
AUDIT_SHARE = 0.5  # of the pool that audits use
_FEWEST = 2  # a network that was trained on a row, and one that was not


def remaining(session: Session, version: ModelVersion) -> RowSet:
    """The version's rows, less those that have been deleted."""
    return service.rows_of(session, version) - row_sets.tombstoned(session, version.dataset_version_id)


def candidates(session: Session, version: ModelVersion) -> RowSet:
    """What a pool's networks are drawn from: the rows that remain, and the data set's held-out ones.

    So a held-out row is inside some networks and outside others, as one that trained the version is.
    """
    deleted = row_sets.tombstoned(session, version.dataset_version_id)
    return remaining(session, version) | (_held_out(session, version) - deleted)


def _held_out(session: Session, version: ModelVersion) -> RowSet:
    dataset = datasets.get_version(session, version.dataset_version_id)
    return row_sets.of_role(session, dataset, "holdout")


def extend(session: Session, model: Model, version: ModelVersion, wanted: NewShadows, *, actor: str) -> int:
    """Queue a job for each network that the pool lacks; how many.

    Raises:
        Conflict: the model or the data set was retired, or the version cannot be retrained.
        Invalid: the share leaves no row to train on, or none to leave out.
    """
    service.refuse_retired(model)
    if version.weights is None or version.recipe is None or version.state not in _USABLE:
        raise Conflict("Only of a usable version with a training recipe can others like it be trained.")
    if not datasets.hold_ready(session, version.dataset_version_id):
        raise Conflict("The data set version that it was trained on is not in force.")
    service.lock_version(session, version.id)
    rows = len(candidates(session, version))
    if not _leaves_rows(wanted.share, rows):
        detail = f"of {rows} rows leaves none to train on, or none to leave out"
        raise Invalid(faults=[Fault(pointer="/share", detail=detail)])
    discard(session, [version], actor=actor)
    progress = _progress(session, version).get(wanted.share, _Progress({}, set()))
    missing = sorted(set(range(wanted.networks)) - progress.done - progress.running)
    _queue(session, version, wanted.share, missing, actor)
    if not missing and _estimated(version, wanted.share) != pool_name(
        networks(session, version, wanted.share)
    ):
        estimate_if_complete(session, version, wanted.share, actor=actor)
    return len(missing)


def _leaves_rows(share: float, rows: int) -> bool:
    """Whether the share has a row of so many, and is not all of them."""
    return 0 < round(share * rows) < rows


def _queue(
    session: Session, version: ModelVersion, share: float, numbers: Iterable[int], actor: str
) -> list[Job]:
    return [jobs.queue(session, _job(version, share, number, actor)) for number in numbers]


def _job(version: ModelVersion, share: float, number: int, actor: str) -> Job:
    return Job(
        kind=JobKind.SHADOW,
        model_id=version.model_id,
        version_id=version.id,
        dataset_version_id=version.dataset_version_id,
        parameters={
            "architecture": version.architecture,
            "recipe": version.recipe,
            "share": share,
            "number": number,
        },
        seed=jobs.seed_of(version.weights or "", "shadow", str(share), str(number)),
        created_by=actor,
    )


@dataclass(frozen=True)
class Shadow:
    """One network of a pool, with its sets of rows."""

    kept: ShadowNetwork
    rows: RowSet  # what it was trained on
    candidates: RowSet  # what that was drawn from
    correct: RowSet  # those of the candidates that it classifies right


def networks(session: Session, version: ModelVersion, share: float) -> list[ShadowNetwork]:
    """The networks of a pool that hold no deleted row, in the order of their numbers."""
    return [kept for kept in _undeleted(session, version) if kept.share == share]


def opened(session: Session, kept: ShadowNetwork) -> Shadow:
    """The network with its sets of rows."""
    digests = (kept.rows_digest, kept.candidates_digest, kept.correct_digest)
    return Shadow(kept, *(row_sets.read(session, digest) for digest in digests))


def _undeleted(session: Session, version: ModelVersion, spared: RowSet = _NONE) -> list[ShadowNetwork]:
    """The networks of the version that were trained on no deleted row, save on those that are spared."""
    of_version = select(ShadowNetwork).filter_by(version_id=version.id).order_by(ShadowNetwork.number)
    deleted = row_sets.tombstoned(session, version.dataset_version_id) - spared
    if not len(deleted):
        return list(session.scalars(of_version))
    with_rows = of_version.join(RowBits, RowBits.digest == ShadowNetwork.rows_digest)
    found = session.execute(with_rows.add_columns(RowBits.bits))
    return [kept for kept, bits in found if not len(RowSet(bits) & deleted)]


def discard(session: Session, versions: Sequence[ModelVersion], *, spared: RowSet = _NONE, actor: str) -> int:
    """Forget the shadows of these versions that were trained on a row deleted since; how many.

    `spared`: rows whose deletion does not count.
    """
    total = 0
    for version in versions:
        kept = {shadow.id for shadow in _undeleted(session, version, spared)}
        every = session.scalars(select(ShadowNetwork.id).filter_by(version_id=version.id))
        stale = [shadow_id for shadow_id in every if shadow_id not in kept]
        if stale:
            session.execute(delete(ShadowNetwork).where(ShadowNetwork.id.in_(stale)))
            _record(session, version, "shadows discarded", actor=actor, networks=len(stale))
        total += len(stale)
    return total


def discard_replaced(session: Session, *, actor: str) -> int:
    """The same for every version but those in use that hold deleted rows themselves.

    Such a one is still to be freed of them, and the audit of that may compare networks that learned a row
    with ones that did not. Of any other in use, the shadows may have been trained on held-out rows.
    """
    having = select(ShadowNetwork.version_id).distinct()
    found = session.scalars(select(ModelVersion).where(ModelVersion.id.in_(having)))
    settled = [version for version in found if not _is_to_forget(session, version)]
    return discard(session, settled, actor=actor)


def _is_to_forget(session: Session, version: ModelVersion) -> bool:
    return service.is_aliased(session, version) and len(service.tombstoned_rows_of(session, version)) > 0


# --- for an audit -------------------------------------------------------------------------------------


def for_audit(
    session: Session, version: ModelVersion, forget: RowSet, *, most: int, share: float = AUDIT_SHARE
) -> list[ShadowNetwork]:
    """The first `most` networks by which the audit of forgetting these rows may judge.

    They may have learned what is being forgotten: `forget`, and the same people's held-out rows. Of other
    deleted rows they have learned none. Those from before held-out rows were drawn tell nothing of these.
    """
    usable = _undeleted(session, version, _being_forgotten(session, version, forget))
    deleted = row_sets.tombstoned(session, version.dataset_version_id)
    held_out = _held_out(session, version) - deleted
    drawn_from = cache(partial(row_sets.read, session))
    of_share = (kept for kept in usable if kept.share == share)
    found = (kept for kept in of_share if not len(held_out - drawn_from(kept.candidates_digest)))
    return list(islice(found, most))


def _being_forgotten(session: Session, version: ModelVersion, forget: RowSet) -> RowSet:
    dataset = datasets.get_version(session, version.dataset_version_id)
    return forget | (row_sets.kin(session, dataset, forget) & _held_out(session, version))


def ask_for_audit(
    session: Session, version: ModelVersion, forget: RowSet, *, most: int, actor: str
) -> list[Job]:
    """The jobs that train what the pool lacks for `for_audit` to find `most` networks.

    One that is live already is not queued again. Networks that were trained on other deleted rows make room.
    None is queued where nothing can be trained: the audit then does without.
    """
    if not most or not datasets.hold_ready(session, version.dataset_version_id):
        return []
    service.lock_version(session, version.id)
    lacking = most - len(for_audit(session, version, forget, most=most))
    if not lacking or not _leaves_rows(AUDIT_SHARE, len(candidates(session, version))):
        return []
    discard(session, [version], spared=_being_forgotten(session, version, forget), actor=actor)
    pool = select(ShadowNetwork.number).filter_by(version_id=version.id, share=AUDIT_SHARE)
    taken = set(session.scalars(pool))
    numbers = set(islice((number for number in count() if number not in taken), lacking))
    live = {job.parameters["number"]: job for job in _live(session, version, AUDIT_SHARE)}
    queued = _queue(session, version, AUDIT_SHARE, sorted(numbers - live.keys()), actor)
    return [*(live[number] for number in sorted(numbers & live.keys())), *queued]


def _live(session: Session, version: ModelVersion, share: float) -> list[Job]:
    """The jobs that are about to add a network to the pool."""
    query = select(Job).where(Job.kind == JobKind.SHADOW, Job.version_id == version.id, Job.state.in_(LIVE))
    return [job for job in session.scalars(query) if job.parameters["share"] == share]


# --- where a pool stands ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Progress:
    """Of one pool: the newest job of each number, and the numbers whose networks can be used."""

    states: Mapping[int, JobState]
    done: set[int]

    @property
    def running(self) -> set[int]:
        return {number for number, state in self.states.items() if state in LIVE} - self.done

    @property
    def failed(self) -> set[int]:
        ends = (JobState.FAILED, JobState.CANCELLED)
        return {number for number, state in self.states.items() if state in ends} - self.done


def _progress(session: Session, version: ModelVersion) -> dict[float, _Progress]:
    """Of each of the version's pools, by its share."""
    query = select(Job.parameters, Job.state).where(Job.kind == JobKind.SHADOW, Job.version_id == version.id)
    states: dict[float, dict[int, JobState]] = {}
    for parameters, state in session.execute(query.order_by(Job.ordinal)):
        states.setdefault(parameters["share"], {})[parameters["number"]] = state
    done: dict[float, set[int]] = {}
    for kept in _undeleted(session, version):
        done.setdefault(kept.share, set()).add(kept.number)
    return {share: _Progress(numbers, done.get(share, set())) for share, numbers in sorted(states.items())}


def pools(session: Session, version: ModelVersion) -> list[Pool]:
    """The version's pools, as the API shows them."""
    return [
        Pool(
            share=share,
            asked=max(progress.states) + 1,
            done=len(progress.done),
            running=len(progress.running),
            failed=len(progress.failed),
            discarded=len(progress.states.keys() - progress.done - progress.running - progress.failed),
            estimating=_is_estimating(session, version, share),
        )
        for share, progress in _progress(session, version).items()
    ]


# --- what follows from a job's end --------------------------------------------------------------------


def is_unwanted(session: Session, job: Job) -> bool:
    """Whether the model was retired while the job ran."""
    return session.get_one(Model, job.model_id, populate_existing=True).retired_at is not None


def add(session: Session, job: Job) -> None:
    """Keep the result of a shadow job."""
    outcome = job.outcome or {}
    kept = {
        "id": uuid.uuid4(),
        "version_id": job.version_id,
        "share": job.parameters["share"],
        "number": job.parameters["number"],
        "rows_digest": job.rows_digest,
        "candidates_digest": outcome["candidates"],
        "correct_digest": outcome["correct"],
        "job_id": job.id,
        "weights": outcome["weights"],
        "figures": outcome["figures"],
    }
    session.execute(insert(ShadowNetwork).values(kept).on_conflict_do_nothing())


def estimate_if_complete(session: Session, version: ModelVersion, share: float, *, actor: str) -> Job | None:
    """Queue an estimate from all there is, if no more is to come and none is on its way.

    The version is locked: of two last jobs that end at once, the second one sees that both are over. An
    estimate that is on its way looks at the pool again before it is kept.
    """
    service.lock_version(session, version.id)
    session.flush()
    progress = _progress(session, version).get(share)
    retired = session.get_one(Model, version.model_id).retired_at is not None
    if retired or progress is None or progress.running or len(progress.done) < _FEWEST:
        return None
    if _is_estimating(session, version, share):
        return None
    job = Job(
        kind=JobKind.ESTIMATE,
        model_id=version.model_id,
        version_id=version.id,
        dataset_version_id=version.dataset_version_id,
        parameters={"share": share},
        seed=0,
        created_by=actor,
    )
    return jobs.queue(session, job)


def keep_estimate(session: Session, job: Job, *, actor: str) -> bool:
    """Store an estimate with its version; False if the pool has changed since and nothing more will come."""
    version, share = version_of(session, job), job.parameters["share"]
    service.lock_version(session, version.id)
    session.refresh(version)
    found = dict((job.outcome or {})["estimate"])
    if found["pool"] != pool_name(networks(session, version, share)):
        progress = _progress(session, version).get(share)
        if progress is None or not progress.running:
            return False
    figures = dict(version.figures)
    version.figures = {**figures, "memorisation": {**figures.get("memorisation", {}), "estimate": found}}
    _record(session, version, "memorisation estimated", actor=actor, networks=found["networks"])
    return True


def pool_name(kept: Sequence[ShadowNetwork]) -> str:
    """A name for just these networks: by it an estimate says what it comes from."""
    return hashlib.sha256("\n".join(sorted(str(each.id) for each in kept)).encode()).hexdigest()


def _estimated(version: ModelVersion, share: float) -> str | None:
    """The name of the networks that the version's estimate comes from, if it is of this share."""
    found: Mapping[str, Any] = version.figures.get("memorisation", {}).get("estimate", {})
    return found["pool"] if found.get("share") == share else None


def _is_estimating(session: Session, version: ModelVersion, share: float) -> bool:
    query = select(Job.parameters).where(
        Job.kind == JobKind.ESTIMATE, Job.version_id == version.id, Job.state.in_(LIVE)
    )
    return any(parameters["share"] == share for parameters in session.scalars(query))


def version_of(session: Session, job: Job) -> ModelVersion:
    """The version whose pool a job is for."""
    return session.get_one(ModelVersion, job.version_id)


def _record(session: Session, version: ModelVersion, action: str, *, actor: str, networks: int) -> None:
    events.record(
        session,
        actor=actor,
        action=action,
        entity="ModelVersion",
        entity_id=version.id,
        networks=networks,
    )
