"""The Celery application of worker machines. A message only wakes: the database decides who does what."""

from __future__ import annotations

import threading
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_shutting_down

from app.config import settings
from app.logs import configure

stopping = threading.Event()  # set when the worker was asked to stop: running jobs are handed back

celery_app = Celery("expunge", broker=settings().broker_url, include=["workers.tasks"])
celery_app.conf.update(
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    task_acks_late=False,  # the lease in the database and the sweep are the one redelivery
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"socket_timeout": 15, "socket_connect_timeout": 5, "socket_keepalive": True},
)


@setup_logging.connect  # type: ignore[untyped-decorator]
def _configure_logs(**_signal: Any) -> None:  # noqa: ANN401  (Celery sends what it likes)
    configure("worker")


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _hand_back(**_signal: Any) -> None:  # noqa: ANN401  (Celery sends what it likes)
    stopping.set()
