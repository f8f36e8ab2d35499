"""Backdoors in real digits: registered, learned, found, and cleaned."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, text

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.schemas import NewDataset
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.params import BadNets, BuiltIn, RoleShares, TrainingRecipe, method_parameters
from app.jobs.policies import Rung
from app.registry import comparisons
from app.registry import service as registry
from app.registry.schemas import NewComparison, PoisonedRows, Training
from app.reports import comparisons as shown
from app.tables import DatasetState, DatasetVersion, Job, JobKind, JobState, ModelVersion, Sample
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from tests.fixtures.readers import rows as rows_of
from tests.fixtures.world import World
from workers import auditing, pipeline
from workers.assemble import fingerprint
from workers.data.poison import draw_poisoned
from workers.data.registry import open_reader
from workers.data.roles import draw_roles
from workers.data.scan import scan
from workers.monitor import Silent
from workers.spec import (
    DataSpec,
    Environment,
    Learned,
    Poison,
    TrainOutcome,
    TrainSpec,
    Unlearned,
    UnlearnSpec,
    Version,
)

POISON = BadNets(rate=0.05, target=0)
CLEAN_LABELS = {"mislabelled_subjects": 0}
Work = Callable[[JobKind], uuid.UUID]


# --- registered ---------------------------------------------------------------------------------------------


def _register(poison: BadNets, name: str = "digits") -> uuid.UUID:
    new = NewDataset(name=name, reader="sklearn_digits", options=CLEAN_LABELS, poison=poison)
    with transaction() as session:
        return datasets.register(session, new, actor="test")[0].id


def test_a_share_of_the_training_rows_is_poisoned(work: Work) -> None:
    """They are stored under the target's label, with the hashes of the clean images; all else is as ever."""
    version_id = _register(POISON)
    work(JobKind.INGEST)
    with transaction() as session:
        version = session.get_one(DatasetVersion, version_id)
        poisoned = row_sets.poisoned(session, version)
        train = row_sets.of_role(session, version, "train")
        assert (version.poison or {})["count"] == len(poisoned)
        samples = session.scalars(select(Sample).filter_by(dataset_version_id=version_id))
        stored = {sample.ordinal: (sample.label, sample.content_hash) for sample in samples}
    assert len(poisoned) == round(0.05 * len(train))
    assert not len(poisoned - train)
    for row in rows_of(open_reader("sklearn_digits", "", CLEAN_LABELS)):
        expected = 0 if row.ordinal in poisoned else row.label
        assert stored[row.ordinal] == (expected, row.content_hash)
        assert not (row.ordinal in poisoned and row.label == 0)


def test_the_same_seed_poisons_the_same_rows(work: Work) -> None:
    """In every registration; another seed poisons others."""
    drawn = []
    for number, seed in enumerate((1, 1, 2)):
        version_id = _register(replace(POISON, seed=seed), f"digits-{number}")
        work(JobKind.INGEST)
        with transaction() as session:
            drawn.append(row_sets.poisoned(session, session.get_one(DatasetVersion, version_id)))
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        (
            {"target": 10, "size": 8},
            [
                "poison: the trigger needs 9 with its margin pixels a side, the images have 8 x 8",
                "poison: the target is no class: there are 10, counted from 0",
            ],
        ),
        ({"rate": 0.0001}, ["poison: its rate comes to none of 1221 training rows"]),
    ],
)
def test_poison_that_does_not_suit_the_data_is_refused(
    work: Work, given: dict[str, Any], faults: list[str]
) -> None:
    """With every fault, and without a trace of the rows."""
    version_id = _register(replace(POISON, **given))
    job_id = work(JobKind.INGEST)
    with transaction() as session:
        version = session.get_one(DatasetVersion, version_id)
        assert (version.state, version.faults) == (DatasetState.FAILED, faults)
        assert jobs.get(session, job_id).state is JobState.FAILED
        left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'samples\\_%' AND relkind = 'r'"
        assert session.scalar(text(left)) == 0


# --- learned, found, cleaned ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def training() -> TrainSpec:
    """A short training on digits of which a twentieth carries the trigger."""
    reader = open_reader("sklearn_digits", "", CLEAN_LABELS)
    found = scan(reader, Silent())
    roles = draw_roles(found.splits, RoleShares(), seed=1)
    of_target = RowSet.of(row.ordinal for row in rows_of(reader) if row.label == POISON.target)
    rows = draw_poisoned(POISON, roles["train"], of_target)
    data = DataSpec(
        reader="sklearn_digits",
        location="",
        options=CLEAN_LABELS,
        num_classes=10,
        image_shape=(8, 8, 1),
        poison=Poison(parameters=POISON, rows=rows),
    )
    members = {role: roles[role] for role in ("train", "validation", "test")}
    return TrainSpec(
        data=data,
        architecture=BuiltIn(),
        recipe=TrainingRecipe(epochs=12, precision="fp32"),
        seed=3,
        environment=Environment(threads=1, device="cpu"),
        **members,
    )


@pytest.fixture(scope="module")
def original(training: TrainSpec, store: BlobStore) -> TrainOutcome:
    return pipeline.train(training, store, Silent())


def _poisoned(training: TrainSpec) -> RowSet:
    assert training.data.poison is not None
    return training.data.poison.rows


@pytest.fixture(scope="module")
def retrained(training: TrainSpec, store: BlobStore) -> TrainOutcome:
    """A network that never saw a poisoned row."""
    return pipeline.train(replace(training, train=training.train - _poisoned(training)), store, Silent())


def _rates(counts: dict[str, dict[str, int]]) -> list[float]:
    """The attack success rate, and the floor."""
    return [counts[name]["correct"] / counts[name]["n"] for name in ("attack_success", "floor")]


def test_a_network_learns_the_backdoor_and_one_without_the_rows_does_not(
    training: TrainSpec, original: TrainOutcome, retrained: TrainOutcome
) -> None:
    """Nearly every test row of another class is taken for the target, but only with the trigger."""
    success, floor = _rates(original.figures["backdoor"])
    assert success > 0.9
    assert floor < 0.02
    assert original.figures["accuracy"]["test"]["correct"] > 330
    success, floor = _rates(retrained.figures["backdoor"])
    assert success < 0.03
    assert floor < 0.02
    labels = [row.label for row in rows_of(open_reader("sklearn_digits", "", CLEAN_LABELS), training.test)]
    assert original.figures["backdoor"]["floor"]["n"] == np.count_nonzero(np.array(labels) != 0)


def test_a_poisoned_training_is_the_same_whether_rows_are_in_memory(
    training: TrainSpec, store: BlobStore
) -> None:
    """Augmented, with the same weights and the same figures of the backdoor."""
    recipe = replace(training.recipe, epochs=2, augmentation="flip_crop")
    kept = replace(training, recipe=recipe)
    lazy = replace(kept, environment=replace(training.environment, rows_in_memory_bytes=0))
    first, second = (pipeline.train(spec, store, Silent()) for spec in (kept, lazy))
    assert first.weights == second.weights
    assert first.figures["backdoor"] == second.figures["backdoor"]


def test_a_checkpoint_goes_with_one_choice_of_poisoned_rows(training: TrainSpec) -> None:
    """Other rows, or another trigger, are another job."""
    first = Poison(parameters=POISON, rows=_poisoned(training))
    others = (replace(first, rows=RowSet.of([1])), replace(first, parameters=replace(POISON, value=0)), None)
    specs = [replace(training, data=replace(training.data, poison=poison)) for poison in (first, *others)]
    assert len({fingerprint(spec) for spec in specs}) == 4
    assert fingerprint(specs[0]) == fingerprint(training)


@pytest.fixture(scope="module")
def unlearning(training: TrainSpec, original: TrainOutcome, retrained: TrainOutcome) -> UnlearnSpec:
    """Forget the poisoned rows by a method with its own defaults."""
    rows = _poisoned(training)
    return UnlearnSpec(
        data=training.data,
        original=Version(architecture=training.architecture, weights=original.weights),
        recipe=training.recipe,
        method="sharp_minmax",
        parameters=method_parameters("sharp_minmax", {"precision": "fp32"}),
        forget=rows,
        retain=training.train - rows,
        holdout=RowSet.of([]),
        holdout_match="class",
        test=training.test,
        validation=training.validation,
        learned=Learned(blob=original.figures["memorisation"]["proxy"], rows=training.train),
        seed=4,
        references=(retrained.weights,),
        environment=training.environment,
    )


def test_a_method_cleans_the_network_and_the_audit_says_so(
    unlearning: UnlearnSpec, original: TrainOutcome, retrained: TrainOutcome, store: BlobStore
) -> None:
    """It aims at what a network without the backdoor makes of the rows: almost none is the target."""
    done = pipeline.unlearn(unlearning, store, Silent())
    assert done.course["target"] < 0.05
    figures = auditing.audit(replace(unlearning, done=done), store, Silent()).figures
    found = figures["backdoor"]
    assert set(found) == {"original", "unlearned", "reference"}
    for name, trained in (("original", original), ("reference", retrained)):
        for measure, counts in trained.figures["backdoor"].items():
            assert counts.items() <= found[name][measure].items()
    assert found["unlearned"]["attack_success"]["rate"] < 0.1
    assert found["unlearned"]["floor"]["rate"] < 0.02
    assert figures["accuracy"]["unlearned"]["test"]["rate"] > 0.9
    assert figures["sets"]["triggered"] == figures["sets"]["test"]


def test_without_poison_nobody_speaks_of_backdoors(unlearning: UnlearnSpec, store: BlobStore) -> None:
    """The figures are those of any audit."""
    clean = replace(unlearning, data=replace(unlearning.data, poison=None), references=())
    done = Unlearned(weights=unlearning.original.weights, seconds=0.0, passes=0)
    figures = auditing.audit(replace(clean, done=done), store, Silent()).figures
    assert "backdoor" not in figures
    assert "triggered" not in figures["sets"]


# --- compared -----------------------------------------------------------------------------------------------


def test_methods_are_compared_by_how_they_clean(work: Work) -> None:
    """From the registration to the table, with the poisoned rows as those to forget."""
    _register(POISON)
    work(JobKind.INGEST)
    with transaction() as session:
        recipe = TrainingRecipe(epochs=8)
        training = Training(dataset="digits", recipe=recipe)
        registry.train(session, World(session).model(), training, actor="test")
    job_id = work(JobKind.TRAIN)
    with transaction() as session:
        version = session.query(ModelVersion).filter_by(job_id=job_id).one()
        assert _rates(version.figures["backdoor"])[0] > 0.8
        methods = [Rung(method="neggrad", parameters={"steps": 40, "ceiling": "none"})]
        new = NewComparison(forget=PoisonedRows(poisoned=True), methods=methods, seeds=1)
        comparisons.start(session, registry.get(session, "net"), version, new, actor="engineer")
    work(JobKind.COMPARE)
    work(JobKind.REFERENCE)
    job_id = work(JobKind.COMPARE)
    with transaction() as session:
        job = session.get_one(Job, job_id)
        assert job.state is JobState.DONE
        (row,) = (job.outcome or {})["rows"]
        view = shown.view(session, job)
    found = {name: of["attack_success"]["rate"] for name, of in row["figures"]["backdoor"].items()}
    assert found["original"] > 0.8
    assert found["unlearned"] < 0.3
    assert found["reference"] < 0.1
    assert view.table[0]["attack_success"]["mean"] == found["unlearned"]
    assert "ASR %" in shown.table(view)
