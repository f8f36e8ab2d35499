"""From database rows to the frozen specs that the pipeline takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

import torch
from sqlalchemy.orm import Session

from app.config import Settings
from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.deletions.planner import Assignment
from app.jobs.budget import bought
from app.jobs.params import ARCHITECTURE, POISON, RECIPE, Architecture, Plugin, Retrain, method_parameters
from app.registry import references, shadows
from app.registry import service as registry
from app.tables import DatasetVersion, Job, ModelVersion
from models_store.rows import RowSet
from workers.nets.factory import BadArchitecture
from workers.spec import (
    DataSpec,
    Environment,
    Learned,
    Poison,
    ReadinessSpec,
    ShadowSpec,
    Taught,
    TrainSpec,
    Unlearned,
    UnlearnSpec,
    Version,
)

_COMPARED_WITH = ("references", "reference_seconds", "shadows")
_TOLD_BY: Mapping[type, str] = {RowSet: "digest", Unlearned: "weights", Learned: "blob"}
_FEWEST_KIN = 20  # fewer never-trained rows of the same people than this say less than many of the same class


def environment(config: Settings) -> Environment:
    """The threads and the device of this worker: a GPU where there is one, unless told otherwise."""
    found = "cuda" if torch.cuda.is_available() else "cpu"
    return Environment(
        threads=config.worker_threads,
        device=config.device or found,
        rows_in_memory_bytes=config.rows_in_memory_bytes,
    )


def architecture(stored: Mapping[str, Any], config: Settings) -> Architecture:
    """The network that is stored so. Raises BadArchitecture if it is a plugin that is not approved here."""
    chosen = ARCHITECTURE.validate_python(stored)
    if isinstance(chosen, Plugin) and chosen.name not in config.network_plugins:
        raise BadArchitecture("the operator of this worker has approved no plugin of this name")
    return chosen


def data_spec(session: Session, version: DatasetVersion) -> DataSpec:
    """How to read a data set version that is ready."""
    if version.num_classes is None or version.image_shape is None:
        raise ValueError("the data set version was not read yet")
    height, width, channels = version.image_shape
    return DataSpec(
        reader=version.reader,
        location=version.location,
        options=version.options,
        num_classes=version.num_classes,
        image_shape=(height, width, channels),
        manifest=version.manifest,
        poison=_poison(session, version),
    )


def _poison(session: Session, version: DatasetVersion) -> Poison | None:
    if version.poison is None:
        return None
    parameters = POISON.validate_python(version.poison["parameters"])
    return Poison(parameters=parameters, rows=row_sets.poisoned(session, version))


def training(session: Session, job: Job, config: Settings) -> TrainSpec:
    """The spec of a train job: its data set's training rows, less those deleted by now, fixed in the job."""
    version = datasets.version_of_job(session, job)
    rows = row_sets.of_role(session, version, "train") - row_sets.tombstoned(session, version.id)
    digest = row_sets.keep(session, rows)
    if job.rows_digest != digest:
        job.checkpoint = None
    job.rows_digest = digest
    return _train_spec(session, job, version, rows, config)


def reference(session: Session, job: Job, config: Settings) -> TrainSpec:
    """The spec of a job that trains by a version's recipe on exactly the rows it names: reference, shadow."""
    if job.rows_digest is None:
        raise ValueError("the job names no rows")
    rows = row_sets.read(session, job.rows_digest)
    return _train_spec(session, job, datasets.version_of_job(session, job), rows, config)


def _train_spec(
    session: Session, job: Job, version: DatasetVersion, rows: RowSet, config: Settings
) -> TrainSpec:
    deleted = row_sets.tombstoned(session, version.id)
    return TrainSpec(
        data=data_spec(session, version),
        architecture=architecture(job.parameters["architecture"], config),
        recipe=RECIPE.validate_python(job.parameters["recipe"]),
        train=rows,
        validation=row_sets.of_role(session, version, "validation") - deleted,
        test=row_sets.of_role(session, version, "test") - deleted,
        seed=job.seed,
        environment=environment(config),
    )


def unlearning(session: Session, job: Job, work: Assignment, config: Settings) -> UnlearnSpec:
    """The spec of an unlearn job whose forget set was fixed when it was claimed."""
    method, given = job.parameters["method"], job.parameters["parameters"]
    done = (job.outcome or {}).get("unlearned")
    spec = _unlearn_spec(session, job, work.parent, (work.forget, work.retain), config)
    return replace(
        spec,
        method=method,
        parameters=method_parameters(method, given),
        class_distance=(job.policy or {})["thresholds"]["class_distance"],
        done=Unlearned(**done) if done else None,
    )


def with_networks(session: Session, job: Job, work: Assignment, spec: UnlearnSpec) -> UnlearnSpec:
    """The spec with the networks to compare with that there are now.

    The job notes them: an audit that was interrupted goes on with the same ones, whatever came since.
    """
    chosen = (job.outcome or {}).get("networks")
    if chosen is None:
        chosen = _chosen(session, job, work)
        job.outcome = {**(job.outcome or {}), "networks": chosen}
    retrained = chosen["references"]
    return replace(
        spec,
        reference_seconds=retrained[0]["seconds"] if retrained else None,
        references=tuple(network["weights"] for network in retrained),
        shadows=tuple(
            ShadowSpec(weights=network["weights"], rows=row_sets.read(session, network["rows"]))
            for network in chosen["shadows"]
        ),
    )


def _chosen(session: Session, job: Job, work: Assignment) -> dict[str, Any]:
    """As many as the budget buys; a reference that is there already is compared with in any case."""
    version, buys = session.get_one(ModelVersion, job.version_id), bought(work.audit_budget)
    retrained = references.of(session, version.id, work.retain.digest, most=max(buys.references, 1))
    halves = shadows.for_audit(session, version, work.forget, most=buys.shadows)
    return {
        "references": [{"weights": each.weights, "seconds": each.seconds} for each in retrained],
        "shadows": [{"weights": each.weights, "rows": each.rows_digest} for each in halves],
    }


def comparison(session: Session, job: Job, config: Settings) -> UnlearnSpec | None:
    """What the runs of a comparison share; None if rows that were to remain have been deleted since."""
    version = session.get_one(ModelVersion, job.version_id)
    if job.forget_digest is None or job.rows_digest is None:
        raise ValueError("a comparison names its rows")
    forget, retain = row_sets.read(session, job.forget_digest), row_sets.read(session, job.rows_digest)
    if len(retain & row_sets.tombstoned(session, version.dataset_version_id)):
        return None
    spec = _unlearn_spec(session, job, version, (forget, retain), config)
    return replace(spec, class_distance=job.parameters["thresholds"]["class_distance"])


def readiness(session: Session, job: Job, config: Settings) -> ReadinessSpec:
    """What is known of a version and of its training."""
    version = session.get_one(ModelVersion, job.version_id)
    dataset = datasets.version_of_job(session, job)
    if version.weights is None:
        raise ValueError("the version has no weights")
    deleted = row_sets.tombstoned(session, dataset.id)
    return ReadinessSpec(
        data=data_spec(session, dataset),
        version=Version(architecture=architecture(version.architecture, config), weights=version.weights),
        recipe=None if version.recipe is None else RECIPE.validate_python(version.recipe),
        rows=registry.rows_of(session, version) - deleted,
        validation=row_sets.of_role(session, dataset, "validation") - deleted,
        learned=_learned(session, version),
        taught=_taught(session, version),
        seed=job.seed,
        environment=environment(config),
    )


def _taught(session: Session, version: ModelVersion) -> Taught | None:
    """The training that the version's weights come from; None if there was none here, or it is not known."""
    while version.origin == "unlearned" and version.parent_id is not None:
        version = session.get_one(ModelVersion, version.parent_id)
    if version.origin != "trained" or version.job_id is None or version.rows_digest is None:
        return None
    device = version.figures.get("environment", {}).get("device", "cpu")
    return Taught(
        rows=row_sets.read(session, version.rows_digest),
        seed=session.get_one(Job, version.job_id).seed,
        device_type=torch.device(device).type,
        snapshots=tuple(version.figures.get("trajectory", ())),
    )


def _unlearn_spec(
    session: Session, job: Job, parent: ModelVersion, sets: tuple[RowSet, RowSet], config: Settings
) -> UnlearnSpec:
    """All that is known of the rows and networks; the method is that of an exact retraining."""
    forget, retain = sets
    version = datasets.version_of_job(session, job)
    if parent.weights is None:
        raise ValueError("the version has no weights")
    found = references.find(session, parent.id, retain.digest)
    kin = row_sets.kin(session, version, forget)
    holdout, match = _holdout(session, version, forget, kin)
    deleted = row_sets.tombstoned(session, version.id)
    validation = row_sets.of_role(session, version, "validation")
    return UnlearnSpec(
        data=data_spec(session, version),
        original=Version(architecture=architecture(parent.architecture, config), weights=parent.weights),
        recipe=RECIPE.validate_python(parent.recipe or {}),  # what it says of images is the default
        method="retrain",
        parameters=Retrain(),
        forget=forget,
        retain=retain,
        holdout=holdout,
        holdout_match=match,
        test=row_sets.of_role(session, version, "test") - deleted,
        validation=validation - deleted,
        kin=validation & kin,  # those who left included: they are only measured, as by the audit
        learned=_learned(session, parent),
        taught=_taught(session, parent),
        seed=job.seed,
        reference_seconds=found.seconds if found else None,
        references=(found.weights,) if found else (),
        environment=environment(config),
    )


def _learned(session: Session, version: ModelVersion) -> Learned | None:
    recorded = version.figures.get("memorisation", {})
    if "proxy" not in recorded or "rows" not in recorded:
        return None
    return Learned(blob=recorded["proxy"], rows=row_sets.read(session, recorded["rows"]))


def _holdout(
    session: Session, version: DatasetVersion, forget: RowSet, kin: RowSet
) -> tuple[RowSet, Literal["subject", "class"]]:
    """The attack's non-members: the same people's never-trained rows where there are enough of them."""
    holdout = row_sets.of_role(session, version, "holdout")
    same = holdout & kin
    if len(same) >= max(_FEWEST_KIN, len(forget) // 2):
        return same, "subject"
    return holdout, "class"


def fingerprint(spec: TrainSpec | UnlearnSpec) -> str:
    """A digest of everything that decides what is computed; a checkpoint goes with one fingerprint only.

    The networks that an unlearned one is compared with are left out: they may come while it is computed.
    """
    told = {name: value for name, value in described(spec).items() if name not in _COMPARED_WITH}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def described(spec: TrainSpec | UnlearnSpec) -> Mapping[str, Any]:
    """The spec as JSON-ready data, sets of rows by their digest."""
    return {name: _plain(getattr(spec, name)) for name in spec.__dataclass_fields__}


def _plain(value: object) -> object:
    for kind, name in _TOLD_BY.items():
        if isinstance(value, kind):
            return getattr(value, name)
    if isinstance(value, Taught):
        return [value.rows.digest, value.seed, *value.snapshots]
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
