"""What an operator watches: answers counted as they leave, and the rest read from the database on demand."""

from __future__ import annotations

import time
from http import HTTPMethod

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.tables import DeletionRequest, Job, JobState, OutboxMessage, RequestState
from app.tables.jobs import LIVE, PATIENT

_PENDING = (RequestState.RECEIVED, RequestState.IN_PROGRESS)
_METHODS = frozenset(HTTPMethod)

_requests = Counter("expunge_http_requests_total", "Requests answered.", ["method", "route", "status"])
_seconds = Histogram("expunge_http_request_seconds", "Time to answer.", ["method", "route"])


class Measured:
    """Counts and times every answer by the template of its route, so that no ID becomes a label."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in _METHODS else "unknown"  # callers may invent some
            _requests.labels(method, route, status).inc()
            _seconds.labels(method, route).observe(time.perf_counter() - started)


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
            "Age of the oldest queued job, but for those that let all others pass.",
            queued.where(Job.state == JobState.QUEUED, Job.kind.not_in(PATIENT)),
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
