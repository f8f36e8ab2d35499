"""The documented commands of a backup and a restore, run with PostgreSQL's own programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.engine import make_url

from app.config import Settings, settings
from app.datasets import rows as row_sets
from app.db import engine_for, transaction
from app.embedded import Postgres
from app.embedded.binaries import postgres_programs
from app.migrate import upgrade
from app.scheduler import Scheduler
from app.tables import DeletionRequest
from models_store.blobs import BlobStore
from tests.fixtures import compose
from tests.fixtures.world import TRAIN, World

_HERE = {
    "docker compose exec -T postgres ": "",
    "docker compose exec -T scheduler ": "",
    "docker compose run --rm --no-deps -T --entrypoint tar scheduler ": "tar ",
    "docker compose run --rm migrate": f"{sys.executable} -m app.cli migrate",
    "docker compose run --rm --no-deps scheduler ": f"{sys.executable} -m app.cli ",
}


def _documented(name: str) -> list[str]:
    """The commands of the block of operations.md that has this name."""
    text = (compose.ROOT / "docs" / "operations.md").read_text()
    (block,) = re.findall(rf"```sh\n# {name}\n(.*?)```", text, re.DOTALL)
    return str(block).splitlines()


@pytest.fixture
def database(tmp_path: Path, configure: Callable[..., Settings], config: Settings) -> Iterator[str]:
    """The URL of a server of the test's own, whose database and role are called as in the compose file."""
    with Postgres(config.var / "postgres").running() as url:
        upgrade(url)
        configure(database_url=url)
        yield url
        engine_for(url).dispose()


@pytest.fixture
def run(database: str, config: Settings, tmp_path: Path) -> Callable[[str], str]:
    """A function that runs a documented command on this machine and returns what it printed."""
    url = make_url(database)
    here = {
        "PATH": f"{postgres_programs(None)}:{os.environ['PATH']}",
        "PGHOST": str(url.query["host"]),
        "PYTHONPATH": str(compose.ROOT),
    }
    environment = here | {key: value for key, value in os.environ.items() if key.startswith("EXPUNGE_")}

    def run(command: str) -> str:
        for theirs, ours in _HERE.items():
            command = command.replace(theirs, ours)
        assert "docker" not in command
        command = command.replace("/var/lib/expunge", str(config.var))
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _accept(*ordinals: int) -> str:
    """Have a request for these rows accepted, and written into the journal by the scheduler."""
    with transaction() as session:
        request_id = World(session).request(*ordinals).id
    Scheduler(settings()).write_journal()
    return str(request_id)


def _state() -> dict[str, set[int]]:
    """Every request and the rows that it bars."""
    with transaction() as session:
        ids = session.scalars(select(DeletionRequest.id))
        held = {request_id: row_sets.of_request(session, request_id).values() for request_id in ids}
    return {
        str(request_id): {row for rows in versions for row in rows} for request_id, versions in held.items()
    }


@pytest.mark.parametrize("store", ["kept", "lost"])
def test_a_restored_service_keeps_what_was_promised_after_the_backup(
    run: Callable[[str], str], config: Settings, store: str
) -> None:
    """By the documented commands: the dump and the journal make up what there was, and work goes on."""
    with transaction() as session:
        World(session).dataset()
        model_id = World(session).trained().model_id
    before = _accept(1)
    blob = BlobStore(config.store).put(b"weights")
    dump, archive = _documented("back up")
    run(dump)
    after = _accept(2, 3)
    (config.var / "keys").mkdir(exist_ok=True)
    run(archive)
    promised = _state()
    assert promised == {before: {1}, after: {2, 3}}
    if store == "lost":
        shutil.rmtree(config.store)

    stop, start_postgres, *commands, start = _documented("restore")
    assert [stop, start_postgres] == [
        "docker compose --profile '*' down",
        "docker compose up --detach --wait postgres",
    ]
    assert start == "docker compose up --detach"
    printed = [run(line) for line in commands if store == "lost" or not line.endswith("# step 3")]
    assert "1 requests that the database lacked would be accepted again" in printed[-2]
    assert "1 requests that the database lacked were accepted again" in printed[-1]
    assert _state() == promised
    assert BlobStore(config.store).get(blob) == b"weights"
    with transaction() as session:
        world = World(session)
        world.carry_out()
        assert world.rows(world.aliased(model_id)) == set(TRAIN) - {1, 2, 3}
        assert world.tombstoned(world.dataset("others")) == set()


def test_a_service_on_one_machine_catches_up_while_it_runs(config: Settings, database: str) -> None:
    """`restore-tombstones` finds the database of the service that runs on the same folder."""
    command = [sys.executable, "-m", "app.cli", "restore-tombstones"]
    environment = {"PATH": os.environ["PATH"], "EXPUNGE_VAR": str(config.var)}
    done = subprocess.run(command, cwd=compose.ROOT, env=environment, check=True, capture_output=True)
    assert done.stdout == b"0 requests that the database lacked were accepted again.\n"
