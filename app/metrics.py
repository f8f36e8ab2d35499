"""What an operator watches, read from the database when it is asked for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.tables import DeletionRequest, Job, JobState, OutboxMessage, RequestState
from app.tables.jobs import LIVE

_PENDING = (RequestState.RECEIVED, RequestState.IN_PROGRESS)


def operating_figures(session: Session) -> bytes:
    """Queue depth and age, requests by state, days left of the most urgent one, outbox lag."""
    registry = CollectorRegistry()
    depth = Gauge("expunge_jobs", "Jobs that have not ended.", ["kind", "state"], registry=registry)
    live = select(Job.kind, Job.state, func.count()).where(Job.state.in_(LIVE))
    for kind, state, number in session.execute(live.group_by(Job.kind, Job.state)):
        depth.labels(kind, state).set(number)
    requests = Gauge("expunge_deletion_requests", "Pending requests.", ["state"], registry=registry)
    pending = select(DeletionRequest.state, func.count()).where(DeletionRequest.state.in_(_PENDING))
    for stage, number in session.execute(pending.group_by(DeletionRequest.state)):
        requests.labels(stage).set(number)
    _ages(session, registry)
    return generate_latest(registry)


def _ages(session: Session, registry: CollectorRegistry) -> None:
    queued = select(func.extract("epoch", func.now() - func.min(Job.created_at)))
    due = select(func.extract("epoch", func.min(DeletionRequest.due_at) - func.now()) / 86_400)
    lag = select(func.extract("epoch", func.now() - func.min(OutboxMessage.created_at)))
    for name, text, query in (
        (
            "expunge_oldest_queued_job_seconds",
            "Age of the oldest queued job.",
            queued.where(Job.state == JobState.QUEUED),
        ),
        (
            "expunge_days_left_of_most_urgent_request",
            "Days until the next due date.",
            due.where(DeletionRequest.state.in_(_PENDING)),
        ),
        (
            "expunge_outbox_lag_seconds",
            "Age of the oldest message not relayed.",
            lag.where(OutboxMessage.published_at.is_(None)),
        ),
    ):
        value = session.scalar(query)
        if value is not None:
            Gauge(name, text, registry=registry).set(float(value))
