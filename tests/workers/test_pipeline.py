from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.jobs import params
from app.jobs.params import BuiltIn, RoleShares, SharpMinMax, TrainingRecipe
from app.reports.sections import sections
from models_store.blobs import BlobStore
from models_store.checkpoints import pack, unpack
from models_store.rows import RowSet
from workers import auditing, examination, opening, pipeline
from workers.answers import Answers, all_answers
from workers.answers import Rows as AuditedRows
from workers.audit.outputs import Outputs, SetName
from workers.data.batches import Rows
from workers.data.loading import content_hashes, load
from workers.data.reader import DataChanged, DataMissing
from workers.data.registry import open_reader
from workers.data.roles import draw_roles
from workers.data.scan import scan
from workers.data.seeds import generator
from workers.methods.registry import METHODS
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.spec import (
    DataSpec,
    Environment,
    Learned,
    Taught,
    TrainOutcome,
    TrainSpec,
    Unlearned,
    UnlearnSpec,
    Version,
)
from workers.training.confidence import scores
from workers.training.evaluate import evaluate

ARCHITECTURE = BuiltIn(width=0.5)
RECIPE = TrainingRecipe(epochs=6, precision="fp32", trajectory=True)
ENVIRONMENT = Environment(threads=1, device="cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(str(tmp_path_factory.mktemp("store")))


def _wrong() -> RowSet:
    """The rows of contributors who handed in wrong labels."""
    return RowSet.of(
        ordinal
        for chunk in open_reader("sklearn_digits", "", {}).chunks()
        for ordinal, subject in zip(chunk.ordinals.tolist(), chunk.subjects or (), strict=True)
        if subject is not None and subject < "contributor-07"
    )


WRONG = _wrong()


def _done(weights: str) -> Unlearned:
    """A result of a method of which nothing else is known."""
    return Unlearned(weights=weights, seconds=0.0, passes=0)


@pytest.fixture(scope="module")
def training() -> TrainSpec:
    """A short training on the digits, their roles drawn as at registration."""
    found = scan(open_reader("sklearn_digits", "", {}), Silent())
    roles = draw_roles(found.splits, RoleShares(), seed=1)
    members = {role: roles[role] for role in ("train", "validation", "test")}
    data = DataSpec(
        reader="sklearn_digits",
        location="",
        num_classes=found.num_classes,
        image_shape=found.image_shape,
    )
    return TrainSpec(
        data=data,
        architecture=ARCHITECTURE,
        recipe=RECIPE,
        seed=3,
        environment=ENVIRONMENT,
        **members,
    )


@pytest.fixture(scope="module")
def original(training: TrainSpec, store: BlobStore) -> TrainOutcome:
    return pipeline.train(training, store, Silent())


@pytest.fixture(scope="module")
def unlearning(training: TrainSpec, original: TrainOutcome) -> UnlearnSpec:
    """Forget the mislabelled contributors' training rows; their other rows are the holdout."""
    forget = WRONG & training.train
    return UnlearnSpec(
        data=training.data,
        original=Version(architecture=ARCHITECTURE, weights=original.weights),
        recipe=RECIPE,
        method="sharp_minmax",
        parameters=SharpMinMax(steps=20, precision="fp32"),
        taught=Taught(
            rows=training.train,
            seed=training.seed,
            device_type="cpu",
            snapshots=tuple(original.figures["trajectory"]),
        ),
        forget=forget,
        retain=training.train - forget,
        holdout=WRONG - training.train - training.validation,
        holdout_match="subject",
        test=training.test,
        seed=4,
        environment=ENVIRONMENT,
    )


def test_training_is_measured(training: TrainSpec, original: TrainOutcome) -> None:
    """The figures hold accuracies, the curve, the cost and the circumstances, ready for JSON."""
    figures = json.loads(json.dumps(original.figures))
    assert {name: counts["n"] for name, counts in figures["accuracy"].items()} == {
        "train": len(training.train),
        "validation": len(training.validation),
        "test": 360,
    }
    assert figures["accuracy"]["test"]["correct"] > 300
    assert len(figures["curve"]) == 6
    assert figures["passes"] == 6 * -(-len(training.train) // 64)
    assert figures["seconds"] > 0
    assert figures["precision"] == "float32"
    assert figures["environment"]["threads"] == 1


def test_weights_are_stored_with_their_normalisation(
    training: TrainSpec, original: TrainOutcome, store: BlobStore
) -> None:
    """The blob is a safetensors file of the network's weights and statistics; its facts are the constants."""
    tensors, facts = unpack(store.get(original.weights))
    weights = [tensor.numel() for name, tensor in tensors.items() if name.endswith(("weight", "bias"))]
    assert sum(weights) == original.figures["parameters"]
    assert facts["mean"][0] == pytest.approx(255 * original.figures["normalisation"]["mean"][0])
    assert 0 < facts["std"][0] < 255
    assert tensors["features.1.num_batches_tracked"].item() == original.figures["passes"]


def test_training_leaves_a_score_of_every_row(
    training: TrainSpec, original: TrainOutcome, unlearning: UnlearnSpec, store: BlobStore
) -> None:
    """The mislabelled rows are beyond nine tenths of the others: the scores are those rows' own."""
    recorded = original.figures["memorisation"]
    assert recorded == {
        "kind": "confidence",
        "proxy": original.blobs["confidence.safetensors"],
        "rows": training.train.digest,
    }
    found = scores(store.get(recorded["proxy"]), training.train)
    wrong = np.array([ordinal in unlearning.forget for ordinal in training.train])
    assert found[wrong].min() > np.quantile(found[~wrong], 0.9)


def test_the_same_spec_gives_the_same_digest(
    training: TrainSpec, original: TrainOutcome, store: BlobStore
) -> None:
    """Training again gives the same bits; another seed gives others."""
    assert pipeline.train(training, store, Silent()).weights == original.weights
    assert pipeline.train(replace(training, seed=9), store, Silent()).weights != original.weights


def test_a_killed_training_resumes_to_the_same_digest(
    training: TrainSpec, original: TrainOutcome, store: BlobStore, stops_after: Any
) -> None:
    """A new process with the checkpoint of the killed one ends where an undisturbed one does."""
    monitor = stops_after(50)
    with pytest.raises(Cancelled):
        pipeline.train(training, store, monitor)
    resumed = pipeline.train(training, store, Silent(monitor.checkpoint))
    assert resumed.weights == original.weights
    assert resumed.figures["curve"] == original.figures["curve"]
    assert resumed.figures["passes"] == original.figures["passes"]
    assert resumed.blobs == original.blobs


def test_changed_data_do_not_train(training: TrainSpec, store: BlobStore) -> None:
    """A training on rows that are not those which were registered fails and names them."""
    reader = open_reader("sklearn_digits", "", {})
    hashes = [digest for chunk in reader.chunks() for digest in content_hashes(reader, chunk)]
    hashes[next(iter(training.train))] = bytes(32)
    changed = replace(training.data, manifest=store.put(b"".join(hashes)))
    with pytest.raises(DataChanged, match=f"^1 rows .*rows {next(iter(training.train))}"):
        pipeline.train(replace(training, data=changed), store, Silent())


def _shadowing(training: TrainSpec) -> TrainSpec:
    """A short training on every other row."""
    rows = list(training.train)[::2]
    return replace(training, train=RowSet.of(rows), recipe=replace(RECIPE, epochs=2))


def test_a_shadow_is_tried_on_the_rows_it_has_not_seen_too(training: TrainSpec, store: BlobStore) -> None:
    """What its stored weights, loaded again, classify as labelled is what was found."""
    spec = _shadowing(training)
    found = pipeline.shadow(spec, training.train, store, Silent())
    network = build(ARCHITECTURE, 10, (8, 8, 1), torch.Generator())
    network.load(*unpack(store.get(found.weights)))
    reader = open_reader("sklearn_digits", "", {})
    rows = Rows.of(*load(reader, training.train, (8, 8, 1)))
    right = evaluate(network, rows).argmax(1) == rows.labels
    assert list(found.correct) == [row for row, hit in zip(training.train, right, strict=True) if hit]
    inside = found.correct & spec.train
    assert found.figures["accuracy"] == {
        "inside": {"correct": len(inside), "n": len(spec.train)},
        "outside": {"correct": len(found.correct - inside), "n": len(training.train - spec.train)},
    }


def test_a_killed_shadow_resumes_to_the_same_network(
    training: TrainSpec, store: BlobStore, stops_after: Any
) -> None:
    """Its weights and what it classifies right are those of one that was not disturbed."""
    spec = _shadowing(training)
    whole = pipeline.shadow(spec, training.train, store, Silent())
    monitor = stops_after(15)
    with pytest.raises(Cancelled):
        pipeline.shadow(spec, training.train, store, monitor)
    assert monitor.checkpoint is not None
    resumed = pipeline.shadow(spec, training.train, store, Silent(monitor.checkpoint))
    assert (resumed.weights, resumed.correct) == (whole.weights, whole.correct)


ONE_STEP: dict[str, dict[str, Any]] = {
    "influence": {"iterations": 20, "retain_sample": 64},
    "fisher_forgetting": {"retain_sample": 40},
    "gradient_reversal": {"precision": "fp32"},
}


def _small(method: str) -> params.MethodParameters:
    given = {} if method == "retrain" else ONE_STEP.get(method, {"steps": 20})
    return params.method_parameters(method, given)


@pytest.mark.parametrize("method", sorted(METHODS.keys() - ONE_STEP))
def test_a_killed_unlearning_resumes_to_the_same_digest(
    unlearning: UnlearnSpec, store: BlobStore, stops_after: Any, method: str
) -> None:
    """For every method of many steps: killed in the middle or not, the new version is the same."""
    spec = replace(unlearning, method=method, parameters=_small(method))
    whole = pipeline.unlearn(spec, store, Silent())
    monitor = stops_after(50 if method == "retrain" else 15)
    with pytest.raises(Cancelled):
        pipeline.unlearn(spec, store, monitor)
    assert monitor.checkpoint is not None
    resumed = pipeline.unlearn(spec, store, Silent(monitor.checkpoint))
    assert resumed.weights == whole.weights
    assert resumed.passes == whole.passes


BATCH_BY_BATCH = replace(ENVIRONMENT, rows_in_memory_bytes=0)


def test_rows_beyond_memory_train_to_the_same_digest(
    training: TrainSpec, original: TrainOutcome, store: BlobStore, stops_after: Any
) -> None:
    """Whether rows lie in memory or are read batch by batch, at once or after a kill, decides no bit."""
    spec = replace(training, environment=BATCH_BY_BATCH)
    whole = pipeline.train(spec, store, Silent())
    assert (whole.weights, whole.blobs) == (original.weights, original.blobs)
    assert whole.figures["accuracy"] == original.figures["accuracy"]
    monitor = stops_after(50)
    with pytest.raises(Cancelled):
        pipeline.train(spec, store, monitor)
    assert pipeline.train(spec, store, Silent(monitor.checkpoint)).weights == original.weights


@pytest.mark.parametrize("method", sorted(METHODS))
def test_rows_beyond_memory_are_unlearned_and_audited_alike(
    unlearning: UnlearnSpec, store: BlobStore, method: str
) -> None:
    """For every method: the same weights, and the same figures of the audit."""
    kept = replace(unlearning, method=method, parameters=_small(method))
    lazy = replace(kept, environment=BATCH_BY_BATCH)
    weights = [pipeline.unlearn(spec, store, Silent()).weights for spec in (kept, lazy)]
    assert weights[0] == weights[1]
    first, second = (
        auditing.audit(replace(spec, done=_done(weights[0])), store, Silent()) for spec in (kept, lazy)
    )
    assert first.blobs == second.blobs
    assert {**first.figures, "cost": 0} == {**second.figures, "cost": 0}


def test_a_trajectory_begins_with_the_first_weights(
    training: TrainSpec, original: TrainOutcome, store: BlobStore
) -> None:
    """A file an epoch, each the weights that it began with; without being asked for, none is kept."""
    kept = original.figures["trajectory"]
    assert len(kept) == len(set(kept)) == 6
    assert [original.blobs[f"epoch-{number}.safetensors"] for number in range(6)] == kept
    fresh = build(ARCHITECTURE, 10, (8, 8, 1), generator(training.seed, "initialise"))
    for name, tensor in unpack(store.get(kept[0]))[0].items():
        assert torch.equal(tensor, fresh.tensors()[name])
    plain = replace(training, recipe=replace(RECIPE, trajectory=False))
    bare = pipeline.train(plain, store, Silent())
    assert bare.weights == original.weights
    assert set(bare.blobs) == {"confidence.safetensors"}


def test_retraining_is_training_on_the_remaining_rows(
    training: TrainSpec, unlearning: UnlearnSpec, store: BlobStore
) -> None:
    """A `retrain` rung and a reference job of one seed give the same network, and the same scores of rows."""
    rung = replace(unlearning, method="retrain", parameters=params.Retrain())
    reference = replace(training, train=unlearning.retain, seed=unlearning.seed)
    retrained, trained = pipeline.unlearn(rung, store, Silent()), pipeline.train(reference, store, Silent())
    assert retrained.weights == trained.weights
    left = [outcome.blobs["confidence.safetensors"] for outcome in (retrained, trained)]
    mine, theirs = (scores(store.get(digest), unlearning.retain) for digest in left)
    assert np.array_equal(mine, theirs)


def test_a_reference_is_taken_as_the_retraining(unlearning: UnlearnSpec, store: BlobStore) -> None:
    """Where a network trained on exactly R exists, retraining costs nothing."""
    spec = replace(unlearning, method="retrain", parameters=params.Retrain(), references=("ab" * 32,))
    done = pipeline.unlearn(spec, store, Silent())
    assert (done.weights, done.seconds, done.passes) == ("ab" * 32, 0.0, 0)


def test_rows_that_were_learned_late_are_expected_to_be_forgotten(
    training: TrainSpec, original: TrainOutcome, unlearning: UnlearnSpec, store: BlobStore
) -> None:
    """Less is expected of mislabelled rows once it is known how they were learned; a lost blob is no harm."""
    learned = Learned(blob=original.figures["memorisation"]["proxy"], rows=training.train)
    unseen = training.validation - WRONG
    targets = [
        pipeline.unlearn(replace(unlearning, validation=unseen, learned=known), store, Silent()).course[
            "target"
        ]
        for known in (None, learned, replace(learned, blob="ab" * 32))
    ]
    assert targets[1] < targets[0] - 0.15
    assert targets[2] == targets[0]


def test_an_audit_compares_the_networks(
    training: TrainSpec, original: TrainOutcome, unlearning: UnlearnSpec, store: BlobStore
) -> None:
    """Accuracies of all three networks on the same rows, the cost, and a picture, ready for JSON."""
    done = pipeline.unlearn(unlearning, store, Silent())
    reference = pipeline.train(replace(training, train=unlearning.retain, seed=8), store, Silent())
    spec = replace(
        unlearning,
        done=done,
        references=(reference.weights,),
        reference_seconds=12.5,
    )
    audited = auditing.audit(spec, store, Silent())
    figures = json.loads(json.dumps(audited.figures))
    assert figures["sets"] == {"forget": 63, "retain": len(unlearning.retain), "holdout": 63, "test": 360}
    for name in ("original", "unlearned", "reference"):
        assert {key: counts["n"] for key, counts in figures["accuracy"][name].items()} == {
            "retain": len(unlearning.retain),
            "forget": 63,
            "test": 360,
        }
    assert (
        figures["accuracy"]["original"]["test"]["correct"] == original.figures["accuracy"]["test"]["correct"]
    )
    assert (
        figures["accuracy"]["reference"]["test"]["correct"]
        == reference.figures["accuracy"]["test"]["correct"]
    )
    seconds = figures["cost"]["seconds"]
    assert (seconds["unlearning"], seconds["reference"]) == (done.seconds, 12.5)
    assert seconds["audit"] > 0
    assert figures["cost"]["passes"] == {"unlearning": 2 * 20 + 1}
    assert store.get(audited.blobs["margins.svg"]).lstrip().startswith(b"<")


def test_what_several_references_show_fits_the_report(
    training: TrainSpec, unlearning: UnlearnSpec, store: BlobStore
) -> None:
    """Every picture but the margins' has its table, and the page's sections find the figures they are of."""
    weights = tuple(
        pipeline.train(replace(training, train=unlearning.retain, seed=seed), store, Silent()).weights
        for seed in (8, 9)
    )
    spec = replace(unlearning, done=_done(unlearning.original.weights), references=weights)
    audited = auditing.audit(spec, store, Silent())
    figures = json.loads(json.dumps(audited.figures, allow_nan=False))
    tables = figures["tables"]
    assert set(tables) == set(audited.blobs) - {"margins.svg"}
    assert len(tables) == 2 + 2 * 3
    for table in tables.values():
        assert 0 < len(table["rows"]) <= 100
        assert {len(row) for row in table["rows"]} == {len(table["header"])}
    found = {section.heading: section for section in sections(figures)}
    assert len(found) == 8  # all but that of the shadows' attack
    assert [
        len(found[heading].lines) for heading in ("Beside retrained networks", "Looking in other places")
    ] == [5, 8]


def test_an_audit_needs_no_reference_and_no_holdout(unlearning: UnlearnSpec, store: BlobStore) -> None:
    """What is missing is left out, not made up."""
    spec = replace(unlearning, done=_done(unlearning.original.weights), holdout=RowSet.of([]))
    figures = auditing.audit(spec, store, Silent()).figures
    assert "reference" not in figures["accuracy"]
    assert figures["sets"]["holdout"] == 0
    assert figures["cost"]["seconds"]["reference"] is None


def test_an_audit_is_the_same_again(unlearning: UnlearnSpec, store: BlobStore) -> None:
    """All figures but the time follow from the spec."""
    spec = replace(unlearning, done=_done(unlearning.original.weights))
    first, second = (auditing.audit(spec, store, Silent()) for _ in range(2))
    assert first.blobs == second.blobs
    assert {**first.figures, "cost": 0} == {**second.figures, "cost": 0}


def test_audits_share_what_they_have_in_common(
    unlearning: UnlearnSpec, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier audit found of the original is not computed again: the figures are the same."""
    done = pipeline.unlearn(unlearning, store, Silent())
    spec = replace(unlearning, done=done)
    known = Answers()
    first = auditing.audit(spec, store, Silent(), known=known)
    asked: list[Network] = []

    def counted(network: Network, rows: AuditedRows, *, seed: int) -> dict[SetName, Outputs]:
        asked.append(network)
        return all_answers(network, rows, seed=seed)

    monkeypatch.setattr(examination, "all_answers", counted)
    second = auditing.audit(spec, store, Silent(), known=known)
    assert {**first.figures, "cost": 0} == {**second.figures, "cost": 0}
    assert len(asked) == 1  # the unlearned network is every audit's own


def test_nothing_is_audited_before_it_is_unlearned(unlearning: UnlearnSpec, store: BlobStore) -> None:
    """An audit without a result to judge is a mistake of the caller."""
    with pytest.raises(ValueError, match="nothing to audit"):
        auditing.audit(unlearning, store, Silent())


def test_large_retain_sets_are_sampled() -> None:
    """Of more than 10,000 rows a seeded sample of 10,000 is judged; fewer are all taken."""
    many = RowSet.of(range(5, 25_000, 2))
    sample = opening.sample(many, seed=1)
    assert len(sample) == 10_000
    assert not sample - many
    assert sample == opening.sample(many, seed=1) != opening.sample(many, seed=2)
    assert opening.sample(RowSet.of(range(10_000)), seed=1) == RowSet.of(range(10_000))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tensors: {**tensors, "extra": torch.ones(1)},
        lambda tensors: {name: tensor for name, tensor in tensors.items() if name != "mean"},
        lambda tensors: {**tensors, "mean": torch.ones(3, 1, 1)},
    ],
    ids=["extra", "missing", "shape"],
)
def test_weights_of_another_architecture_are_refused(
    unlearning: UnlearnSpec,
    store: BlobStore,
    spoil: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
) -> None:
    """A blob with other tensors, or other shapes, is not loaded in part."""
    tensors, _ = unpack(store.get(unlearning.original.weights))
    weights = store.put(pack(spoil(tensors)))
    spec = replace(unlearning, original=Version(architecture=ARCHITECTURE, weights=weights))
    with pytest.raises(opening.WrongWeights):
        pipeline.unlearn(spec, store, Silent())


def test_data_that_vanished_is_missing(training: TrainSpec, store: BlobStore, tmp_path: Path) -> None:
    """A location that no longer exists ends the job with a clear error."""
    data = replace(training.data, reader="npz", location=str(tmp_path / "gone.npz"))
    with pytest.raises(DataMissing):
        pipeline.train(replace(training, data=data), store, Silent())


def test_nothing_is_stored_for_a_cancelled_job(training: TrainSpec, tmp_path: Path, stops_after: Any) -> None:
    """A job that is cancelled leaves no blob behind, unless it was to keep its trajectory."""
    empty = BlobStore(str(tmp_path / "store"))
    plain = replace(training, recipe=replace(RECIPE, trajectory=False))
    with pytest.raises(Cancelled):
        pipeline.train(plain, empty, stops_after(5))
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
