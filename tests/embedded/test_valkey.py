"""The local Valkey."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from celery import Celery

from app.embedded import AlreadyRunning, Valkey, redis_url


def test_celery_and_redis_reach_it(tmp_path: Path) -> None:
    """A message sent through Celery's URL is seen through redis-py's."""
    with Valkey(tmp_path).running() as url, redis.Redis.from_url(redis_url(url)) as client:
        with Celery(broker=url) as celery:
            celery.send_task("a.task", args=["an id"], queue="jobs", ignore_result=True)
        assert client.llen("jobs") == 1


def test_it_evicts_and_saves_nothing(tmp_path: Path) -> None:
    """A full broker refuses instead of dropping messages, and a new start is an empty one."""
    with Valkey(tmp_path).running() as url, redis.Redis.from_url(redis_url(url)) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        client.set("left", "behind")
    with Valkey(tmp_path).running() as url, redis.Redis.from_url(redis_url(url)) as client:
        assert client.dbsize() == 0
        assert client.config_get("port") == {"port": "0"}


def test_a_folder_has_one_user(tmp_path: Path) -> None:
    """A second server on the same folder is refused."""
    with Valkey(tmp_path).running(), pytest.raises(AlreadyRunning), Valkey(tmp_path).running():
        pass
