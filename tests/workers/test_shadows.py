"""Shadows and the estimate of memorisation, computed for real."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from math import isnan, nan, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.config import Settings
from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.params import TrainingRecipe
from app.jobs.policies import Rung
from app.jobs.service import Lease
from app.registry import comparisons, memorisation, shadows
from app.registry import service as registry
from app.registry.schemas import NewComparison, NewShadows, TierRows, Training
from app.registry.shadows import Shadow
from app.tables import Artefact, Job, JobKind, JobState, ModelVersion, Sample, ShadowNetwork
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from models_store.vectors import read_vectors
from tests.fixtures.world import World
from tests.workers.conftest import take
from workers import run
from workers import shadows as computing
from workers.audit.memorisation import Memorisation
from workers.training import confidence

NETWORKS = 4


@pytest.fixture
def asked(work: Callable[[JobKind], uuid.UUID]) -> uuid.UUID:
    """A version that a real training made, of which a pool was asked for."""
    with transaction() as session:
        World(session).register("digits")
    work(JobKind.INGEST)
    with transaction() as session:
        training = Training(dataset="digits", recipe=TrainingRecipe(epochs=2))
        registry.train(session, World(session).model(), training, actor="test")
    job_id = work(JobKind.TRAIN)
    with transaction() as session:
        version = session.query(ModelVersion).filter_by(job_id=job_id).one()
        model, wanted = registry.get(session, "net"), NewShadows(networks=NETWORKS)
        shadows.extend(session, model, version, wanted, actor="engineer")
        return version.id


def _pool(session: Session, version_id: uuid.UUID) -> list[Shadow]:
    version = session.get_one(ModelVersion, version_id)
    return [shadows.opened(session, kept) for kept in shadows.networks(session, version, 0.5)]


def _delete(session: Session, version_id: uuid.UUID, *rows: int) -> None:
    version = session.get_one(ModelVersion, version_id)
    row_sets.cover_pairs(session, version.dataset_version_id, [(row, uuid.uuid4()) for row in rows])


def test_a_shadow_is_trained_on_half_of_the_rows_that_are_left(
    work: Callable[[JobKind], uuid.UUID], asked: uuid.UUID, one_thread: Settings
) -> None:
    """And of the held-out ones. Drawn anew for each; its blob is noted as derived from them."""
    with transaction() as session:
        version = session.get_one(ModelVersion, asked)
        dataset = datasets.get_version(session, version.dataset_version_id)
        held_out = row_sets.of_role(session, dataset, "holdout")
        rows = registry.rows_of(session, version) | held_out
        gone = next(iter(rows))
        _delete(session, asked, gone)
    job_id, _ = work(JobKind.SHADOW), work(JobKind.SHADOW)
    left = rows - RowSet.of([gone])
    with transaction() as session:
        first, second = _pool(session, asked)
        (noted,) = session.query(Artefact).filter_by(job_id=job_id)
        assert (noted.digest, noted.rows_digest) == (first.kept.weights, first.rows.digest)
        assert BlobStore(one_thread.store).has(first.kept.weights)
    assert first.candidates == second.candidates == left
    assert len(first.rows) == len(second.rows) == round(len(left) / 2)
    assert first.rows != second.rows
    for shadow in (first, second):
        assert 0.4 < len(shadow.rows & held_out) / len(held_out) < 0.6
    assert len((first.rows | second.rows | first.correct) - left) == 0


def test_a_worker_that_dies_leaves_the_same_network_to_be_trained(
    work: Callable[[JobKind], uuid.UUID],
    asked: uuid.UUID,
    one_thread: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Draw, order and start follow from the job alone: whoever trains it hands in the same."""
    handed_in: list[dict[str, Any]] = []

    def dies(_session: Session, _lease: Lease, outcome: dict[str, Any]) -> None:
        handed_in.append(outcome)
        raise KeyboardInterrupt

    lease = take(JobKind.SHADOW)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "finish_computing", dies)
        with pytest.raises(KeyboardInterrupt):
            run.execute(lease, one_thread, threading.Event())
    with transaction() as session:
        jobs.give_back(session, lease, "its worker was lost")
    assert work(JobKind.SHADOW) == lease.job_id
    with transaction() as session:
        outcome = session.get_one(Job, lease.job_id).outcome or {}
        assert session.query(ShadowNetwork).one().weights == outcome["weights"]
    kept = ("weights", "candidates", "correct")
    assert [outcome[name] for name in kept] == [handed_in[0][name] for name in kept]


@pytest.fixture
def estimated(work: Callable[[JobKind], uuid.UUID], asked: uuid.UUID) -> uuid.UUID:
    """The version, with a pool and an estimate from it."""
    for _ in range(NETWORKS):
        work(JobKind.SHADOW)
    work(JobKind.ESTIMATE)
    return asked


def test_the_estimate_is_what_counting_says(estimated: uuid.UUID, one_thread: Settings) -> None:
    """Of the version's own rows, from the networks' sets; the figures are those of the scores."""
    with transaction() as session:
        version = session.get_one(ModelVersion, estimated)
        rows, pool = registry.rows_of(session, version), _pool(session, estimated)
        found = version.figures["memorisation"]["estimate"]
        proxy = version.figures["memorisation"]["proxy"]
    vectors = read_vectors(BlobStore(one_thread.store).get(found["scores"]))
    assert vectors.facts == {"rows": rows.digest}
    expected = [_counted(row, pool) for row in rows]
    for (score, error), kept, kept_error in zip(
        expected, vectors.values["scores"], vectors.values["standard_errors"], strict=True
    ):
        assert kept == pytest.approx(score, nan_ok=True)
        assert kept_error == pytest.approx(error, nan_ok=True)
    known = np.array([score for score, _ in expected if not isnan(score)])
    assert (found["networks"], found["share"], found["rows"]) == (NETWORKS, 0.5, len(known))
    assert found["quantiles"]["0.95"] == pytest.approx(np.quantile(known, 0.95))
    assert found["shares_above"]["0.25"] == pytest.approx(np.mean(known > 0.25))
    confidences = confidence.scores(BlobStore(one_thread.store).get(proxy), rows)
    paired = [(score, own) for (score, _), own in zip(expected, confidences, strict=True) if not isnan(score)]
    assert found["spearman_with_proxy"] == pytest.approx(spearmanr(paired).statistic)


def _counted(row: int, pool: list[Shadow]) -> tuple[float, float]:
    """Score and largest standard error of one row, by counting networks."""
    inside = [row in shadow.correct for shadow in pool if row in shadow.rows]
    outside = [row in shadow.correct for shadow in pool if row not in shadow.rows]
    if not inside or not outside:
        return nan, nan
    score = sum(inside) / len(inside) - sum(outside) / len(outside)
    return score, sqrt(0.25 / len(inside) + 0.25 / len(outside))


def test_scores_are_looked_up_and_make_tiers(estimated: uuid.UUID) -> None:
    """Of single samples; a comparison on the high tier forgets the rows with the highest scores."""
    with transaction() as session:
        version = session.get_one(ModelVersion, estimated)
        values = memorisation.scores(session, version, "proxy")
        assert values is not None
        job = comparisons.start(
            session,
            registry.get(session, "net"),
            version,
            NewComparison(
                forget=TierRows(tier="high", share=0.05, by="proxy"), methods=[Rung(method="neggrad")]
            ),
            actor="engineer",
        )
        forget = row_sets.read(session, str(job.forget_digest))
        assert len(forget) == round(0.05 * len(registry.rows_of(session, version)))
        lowest = min(values.values[row] for row in forget)
        assert lowest >= max(value for row, value in values.values.items() if row not in forget)
        row = next(iter(forget))
        query = select(Sample.sample_id).filter_by(dataset_version_id=version.dataset_version_id, ordinal=row)
        name = session.scalars(query).one()
        (shown,) = memorisation.look_up(session, version, [name]).samples
        estimate = memorisation.scores(session, version, "estimate")
        assert estimate is not None
        assert (shown.proxy, shown.estimate) == (values.values[row], estimate.values.get(row))
        assert shown.standard_error == estimate.errors.get(row)


def test_an_estimate_leaves_out_what_was_deleted(
    work: Callable[[JobKind], uuid.UUID], asked: uuid.UUID
) -> None:
    """The networks that learned the row, and the row itself."""
    for _ in range(NETWORKS):
        work(JobKind.SHADOW)
    with transaction() as session:
        pool = _pool(session, asked)
        counts = [sum(row in shadow.rows for shadow in pool) for row in pool[0].candidates]
        gone = list(pool[0].candidates)[counts.index(NETWORKS - 2)]
        _delete(session, asked, gone)
    work(JobKind.ESTIMATE)
    with transaction() as session:
        version = session.get_one(ModelVersion, asked)
        assert version.figures["memorisation"]["estimate"]["networks"] == 2
        found = memorisation.scores(session, version, "estimate")
        assert found is not None
        assert gone not in found.values


def test_too_small_a_pool_fails_and_says_so(work: Callable[[JobKind], uuid.UUID], asked: uuid.UUID) -> None:
    """Two networks of one half tell nothing of any row."""
    for _ in range(NETWORKS):
        work(JobKind.SHADOW)
    with transaction() as session:
        first, *others = _pool(session, asked)
        for shadow in others:
            session.merge(shadow.kept).rows_digest = first.kept.rows_digest
    job_id = work(JobKind.ESTIMATE)
    with transaction() as session:
        job = session.get_one(Job, job_id)
        assert (job.state, job.reason) == (
            JobState.FAILED,
            "no row was inside one network of the pool and outside another",
        )
        assert session.query(ShadowNetwork).count() == NETWORKS


def test_a_share_of_too_few_rows_is_refused() -> None:
    """Deletions may have left one."""
    with pytest.raises(computing.PoolTooSmall, match="no row"):
        computing._drawn(RowSet.of([7]), 0.5, seed=0)


@pytest.mark.parametrize("ordinals", [[], [0], [3, 8, 21, 40]])
def test_sets_become_a_matrix(ordinals: list[int]) -> None:
    """Row by row as the sets say, however far they reach."""
    sets = [RowSet.of([0, 3, 40]), RowSet.of([]), RowSet.of([8, 1000])]
    found = computing._matrix(sets, np.array(ordinals, dtype=np.int64))
    assert found.tolist() == [[row in rows for row in ordinals] for rows in sets]


def test_figures_leave_out_what_is_not_known() -> None:
    """Rows without a score count nowhere; rows without a proxy not in the correlation."""
    found = Memorisation(np.array([0.0, 0.5, nan, 1.0]), np.array([0.1, 0.2, nan, 0.3]))
    figures = computing.summary_of(found, np.array([0.3, 0.1, 0.2, nan]))
    assert (figures["rows"], figures["standard_error"]) == (3, 0.2)
    assert figures["quantiles"]["0.5"] == 0.5
    assert figures["shares_above"] == {"0.25": pytest.approx(2 / 3), "0.5": pytest.approx(1 / 3)}
    assert figures["spearman_with_proxy"] == pytest.approx(-1)
    assert computing.summary_of(found, np.full(4, 0.5))["spearman_with_proxy"] is None
    assert computing.summary_of(found, None)["spearman_with_proxy"] is None
