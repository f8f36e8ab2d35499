"""The broker, seen from the sending side: it wakes workers and decides nothing."""

from __future__ import annotations

from functools import lru_cache

from celery import Celery
from kombu.exceptions import OperationalError

from app.config import settings

TASK = "expunge.run_job"
BrokerUnreachable = OperationalError
_URGENT, _PATIENT = 0, 9  # with the Redis protocol, a list each; the lower number is emptied first


class BrokerNotConfigured(Exception):
    """EXPUNGE_BROKER_URL is not set; `expunge up` sets it for the parts it starts."""


@lru_cache
def _celery(url: str) -> Celery:
    celery = Celery(broker=url)
    celery.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        broker_connection_timeout=3,
        # No retry here: the outbox keeps the message, and the scheduler has other things to do meanwhile.
        broker_transport_options={"socket_timeout": 5, "socket_connect_timeout": 3, "max_retries": 0},
    )
    return celery


def wake(job_id: str, queue: str, *, urgent: bool = True) -> None:
    """Tell a worker that this job is waiting; one that is not urgent lets all others pass.

    Raises BrokerUnreachable.
    """
    url = settings().broker_url
    if url is None:
        raise BrokerNotConfigured(BrokerNotConfigured.__doc__)
    _celery(url).send_task(
        TASK, args=[job_id], queue=queue, retry=False, priority=_URGENT if urgent else _PATIENT
    )
