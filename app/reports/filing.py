"""Filing a report: its body from the rows it is about, and the signed envelope around it."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.config import settings
from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.events import service as events
from app.jobs.policies import POLICY
from app.reports import attestation
from app.reports.contents import DataPart, JobPart, ModelPart, report_body
from app.reports.verdict import Decision, Judgement
from app.tables import Attestation, Job, Model, ModelVersion, Report, Target


def file_report(
    session: Session,
    job: Job,
    parent: ModelVersion,
    judgement: Judgement,
    decision: Decision,
    *,
    version: ModelVersion | None,
) -> Report:
    """Write and sign the report of an audited job; `version` is the one published, if one was."""
    outcome = job.outcome or {}
    body = report_body(
        job=_job_part(job),
        model=_model_part(session, job, parent, version),
        data=_data_part(session, job, parent),
        requests=len(session.scalars(select(Target.id).where(Target.job_id == job.id)).all()),
        policy=POLICY.validate_python(job.policy),
        figures=outcome["figures"],
        judgement=judgement,
        decision=decision,
        environment=outcome["spec"]["environment"],
    )
    report = Report(
        id=uuid.uuid4(),
        job_id=job.id,
        model_id=parent.model_id,
        version_before_id=parent.id,
        version_after_id=version.id if version else None,
        verdict=judgement.verdict,
        published=version is not None,
        body=body,
        blobs=outcome["blobs"],
    )
    session.add(report)
    session.flush()
    session.add(_attest(report))
    events.emit(session, "report.filed", report_id=str(report.id), job_id=str(job.id))
    return report


def _job_part(job: Job) -> JobPart:
    now = datetime.now(UTC)
    return JobPart(
        id=str(job.id),
        kind=job.kind,
        method=job.parameters["method"],
        parameters=job.parameters["parameters"],
        seed=job.seed,
        rung=job.rung or 0,
        started_at=(job.started_at or now).isoformat(),
        finished_at=now.isoformat(),
    )


def _model_part(session: Session, job: Job, parent: ModelVersion, version: ModelVersion | None) -> ModelPart:
    candidate = (job.outcome or {})["unlearned"]["weights"]
    return ModelPart(
        name=session.get_one(Model, parent.model_id).name,
        version_before=parent.number,
        version_after=version.number if version else None,
        weights_before=parent.weights or "",
        weights_after=(version.weights if version else None) or candidate,
        architecture=parent.architecture,
    )


def _data_part(session: Session, job: Job, parent: ModelVersion) -> DataPart:
    dataset = datasets.get_version(session, parent.dataset_version_id)
    forget, retain = job.forget_digest or "", job.rows_digest or ""
    return DataPart(
        dataset=datasets.name_of(session, dataset),
        version=dataset.number,
        forget_rows=len(row_sets.read(session, forget)),
        retain_rows=len(row_sets.read(session, retain)),
        forget_digest=forget,
        retain_digest=retain,
    )


def _attest(report: Report) -> Attestation:
    """Sign digests and conclusions; the figures are bound by the report's digest."""
    body = report.body
    key = attestation.load_or_create_key(settings().var / "keys" / "attestation.pem")
    subjects = {
        "weights-before": body["model"]["weights_before"],
        "weights-after": body["model"]["weights_after"],
        "retained-rows": body["data"]["retain_digest"],
        "report": hashlib.sha256(attestation.canonical_json(body)).hexdigest(),
    }
    predicate = {name: part for name, part in body.items() if name != "report_version"}
    envelope = attestation.sign(attestation.statement(subjects=subjects, predicate=predicate), key)
    public = key.public_key()
    return Attestation(
        report_id=report.id,
        envelope=envelope,
        key_id=attestation.key_id(public),
        public_key=attestation.public_pem(public),
    )
