"""`expunge gc`, run by an operator."""

from __future__ import annotations

import os
import subprocess
import sys

from sqlalchemy import select

from app.config import Settings
from app.db import transaction
from app.registry import service as registry
from app.registry import shadows
from app.registry.schemas import NewShadows
from app.tables import Job, JobKind, JobState, ModelVersion, ShadowNetwork
from models_store.blobs import BlobStore
from tests.fixtures.artefacts import Cellar
from tests.fixtures.world import TRAIN, World


def _gc(database_url: str, config: Settings, *options: str) -> str:
    own = {
        "EXPUNGE_DATABASE_URL": database_url,
        "EXPUNGE_VAR": str(config.var),
    }
    command = [sys.executable, "-m", "app.cli", "gc", *options]
    return subprocess.run(command, env=os.environ | own, check=True, capture_output=True, text=True).stdout


def test_shadows_of_deleted_rows_are_collected(live_database: str, config: Settings) -> None:
    """Once their version was replaced; a dry run leaves them where they are, the others stay in any case."""
    cellar = Cellar(BlobStore(config.store), transaction)
    with transaction() as session:
        world = World(session)
        world.dataset()
        version = world.trained()
        version.weights = cellar.keep("in production")
        model, version_id = registry.get(session, "net"), version.id
        model_id = model.id
        shadows.extend(session, model, version, NewShadows(networks=2), actor="test")
        queued = session.scalars(select(Job).filter_by(kind=JobKind.SHADOW).order_by(Job.ordinal)).all()
        for job, rows in zip(queued, (TRAIN[:20], TRAIN[20:]), strict=True):
            world.finish_shadow(job, rows, TRAIN)
            world.settle(job)
        for kept in session.scalars(select(ShadowNetwork)):
            kept.weights = cellar.keep(f"shadow {kept.number}")
        world.request(TRAIN[0])
    assert "Removed: 0 blobs (0 B)." in _gc(live_database, config, "--delete")
    with transaction() as session:
        world = World(session)
        job = world.carry_out()
        world.aliased(model_id).weights = cellar.keep("in production now")
        assert job.state is JobState.DONE
    assert "2       16 B  kept: shadow networks" in _gc(live_database, config)
    assert "Removed: 1 blob (8 B)." in _gc(live_database, config, "--delete")
    with transaction() as session:
        version = session.get_one(ModelVersion, version_id)
        (left,) = session.scalars(select(ShadowNetwork))
        assert cellar.store.get(left.weights) == b"shadow 1"
        assert World(session).changes(version.id)[-1] == ("gc", "shadows discarded", None)
