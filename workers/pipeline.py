"""What a job computes, from frozen plain data to frozen plain data; no database and no queue.

Each function can be killed at any moment and called again with the same spec: it goes on from the monitor's
newest checkpoint and ends with the same bits.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from app.jobs.params import BadNets, Precision
from models_store.blobs import BlobStore
from models_store.checkpoints import pack, unpack
from models_store.rows import RowSet
from workers import opening
from workers.answers import answers
from workers.audit.backdoor import backdoor
from workers.data.batches import RowSource
from workers.data.poison import triggered
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.methods import probe as probing
from workers.methods.readiness import Subject
from workers.methods.readiness import readiness as measured_readiness
from workers.methods.registry import METHODS
from workers.monitor import Monitor
from workers.nets.factory import BadArchitecture
from workers.nets.fitting import forward_fault, misfits
from workers.nets.network import Network
from workers.spec import (
    Fault,
    ReadinessSpec,
    ShadowOutcome,
    TrainOutcome,
    TrainSpec,
    Unlearned,
    UnlearnSpec,
    Validated,
    ValidateSpec,
)
from workers.training.confidence import Confidence
from workers.training.evaluate import accuracy, hits
from workers.training.memory import begin_peak, peak_bytes
from workers.training.precision import autocast_dtype
from workers.training.surroundings import described, surroundings
from workers.training.train import Lesson, fit

_PROBE_ROWS = 8  # of an uploaded network's first forward pass


def train(spec: TrainSpec, store: BlobStore, monitor: Monitor) -> TrainOutcome:
    """Train a network from scratch and measure it.

    Figures: accuracy {"train" | "validation" | "test": {"correct", "n"}}, curve [{"train_loss",
    "train_accuracy", and what the objective tells} an epoch], readings [{"step", "validation": accuracy} an
    epoch, if the recipe has patience], of the training seconds, passes, rows_per_second and
    peak_memory_bytes, memorisation {"kind": "confidence", "proxy": the blob that
    `workers.training.confidence.scores` reads, "rows": those it tells of}, parameters, precision,
    environment, and on poisoned data backdoor, as `workers.audit.backdoor.backdoor` has it. With `trajectory`
    in the recipe, trajectory: the blobs of the weights that the epochs began with.

    Raises:
        DataFault: the data cannot be read, or are not those that were registered.
        Diverged: the loss left the finite numbers.
        Cancelled: from the monitor.
    """
    with surroundings(spec.environment) as device:
        load_rows = opening.loader(spec, store, device, monitor)
        network = opening.new_network(spec.architecture, spec.data, spec.seed).to(device)
        rows, validation = load_rows(spec.train), load_rows(spec.validation)
        confidence = Confidence(len(rows), device)
        lesson = Lesson(
            rows,
            spec.recipe,
            spec.seed,
            validation=validation,
            confidence=confidence,
            keep=partial(opening.save, network, store) if spec.recipe.trajectory else None,
        )
        begin_peak(device)
        trace = fit(network, lesson, monitor)
        peak = peak_bytes(device)
        judged = sampled_places(len(rows), opening.MOST_JUDGED_ROWS, derived_seed(spec.seed, "train sample"))
        correct = {"train": accuracy(network, rows, torch.from_numpy(judged).to(rows.index_device))}
        test = load_rows(spec.test)
        for name, source in {"validation": validation, "test": test}.items():
            correct[name] = accuracy(network, source)
        proxy = store.put(confidence.packed(spec.train, len(trace.curve)))
        figures: dict[str, Any] = {
            "accuracy": correct,
            "curve": trace.curve,
            "readings": trace.readings,
            "seconds": trace.seconds,
            "passes": trace.passes,
            "rows_per_second": len(trace.curve) * len(rows) / trace.seconds,
            "peak_memory_bytes": peak,
            "memorisation": {"kind": "confidence", "proxy": proxy, "rows": spec.train.digest},
            "parameters": sum(weight.numel() for weight in network.parameters()),
            "normalisation": asdict(network.normalisation),
            "precision": _precision(spec.recipe.precision, device),
            "environment": described(device),
        }
        if spec.data.poison is not None:
            figures["backdoor"] = _backdoor(network, test, spec.data.poison.parameters)
        if trace.kept:
            figures["trajectory"] = trace.kept
        blobs = {f"epoch-{number}.safetensors": digest for number, digest in enumerate(trace.kept)}
        blobs["confidence.safetensors"] = proxy
        return TrainOutcome(weights=opening.save(network, store), figures=figures, blobs=blobs)


def shadow(spec: TrainSpec, judged: RowSet, store: BlobStore, monitor: Monitor) -> ShadowOutcome:
    """Train a network on a part of the judged rows, and see which of all of them it classifies as labelled.

    That is asked of the trained network, in evaluation mode and without augmentation. Figures: accuracy
    {"inside" | "outside": {"correct", "n"}}, seconds and passes of the training, environment.

    Raises:
        DataFault, Diverged, Cancelled: as `train`.
    """
    with surroundings(spec.environment) as device:
        load_rows = opening.loader(spec, store, device, monitor)
        network = opening.new_network(spec.architecture, spec.data, spec.seed).to(device)
        validation = load_rows(spec.validation)
        lesson = Lesson(load_rows(spec.train), spec.recipe, spec.seed, validation=validation)
        trace = fit(network, lesson, monitor)
        right = hits(network, load_rows(judged)).cpu().numpy()
        ordinals = np.fromiter(judged, dtype=np.int64, count=len(judged))
        correct = RowSet.of(ordinals[right].tolist())
        sides = {"inside": judged & spec.train, "outside": judged - spec.train}
        figures = {
            "accuracy": {
                name: {"correct": len(correct & rows), "n": len(rows)} for name, rows in sides.items()
            },
            "seconds": trace.seconds,
            "passes": trace.passes,
            "environment": described(device),
        }
        return ShadowOutcome(weights=opening.save(network, store), correct=correct, figures=figures)


def validate(spec: ValidateSpec, store: BlobStore, monitor: Monitor) -> Validated:
    """Check uploaded weights: every key, shape and value, a forward pass; then measure the network.

    Figures: accuracy {"train" | "validation" | "test": {"correct", "n"}}, parameters, normalisation,
    environment. Of very many training rows a sample is measured.

    Raises:
        DataFault, Cancelled, BlobMissing, BlobDamaged: as above.
    """
    with surroundings(spec.environment) as device:
        try:
            network = opening.new_network(spec.uploaded.architecture, spec.data, seed=0)
        except BadArchitecture as reason:
            return Validated(faults=(Fault(at="architecture", detail=str(reason)),))
        tensors, _ = unpack(store.get(spec.uploaded.weights))
        if faults := misfits(network, tensors, spec.data.num_classes):
            return Validated(faults=faults)
        network.load(tensors, {})
        load_rows = opening.loader(spec, store, device, monitor)
        probe = load_rows(RowSet.of(islice(spec.train, _PROBE_ROWS))).take(slice(None))
        if fault := forward_fault(network.to(device), probe.images, spec.data.num_classes):
            return Validated(faults=(fault,))
        correct: dict[str, dict[str, int]] = {}
        sampled = opening.sample(spec.train, derived_seed(spec.seed, "train sample"))
        for name, rows in {"train": sampled, "validation": spec.validation, "test": spec.test}.items():
            monitor.check_cancelled()
            monitor.progress("measuring", len(correct), 3)
            correct[name] = accuracy(network, load_rows(rows))
        figures = {
            "accuracy": correct,
            "parameters": sum(weight.numel() for weight in network.parameters()),
            "normalisation": asdict(network.normalisation),
            "environment": described(device),
        }
        return Validated(figures=figures)


def unlearn(spec: UnlearnSpec, store: BlobStore, monitor: Monitor) -> Unlearned:
    """Run the method on the original network. A reference trained on exactly R is taken as the retraining.

    Raises:
        DataFault, Diverged, Cancelled: as `train`.
        BlobMissing, BlobDamaged, WrongWeights: the original cannot be loaded.
    """
    if spec.method == "retrain" and spec.reference is not None:
        return Unlearned(weights=spec.reference, seconds=0.0, passes=0)
    with surroundings(spec.environment) as device:
        run = opening.run(spec, store, device, monitor)
        trace = METHODS[spec.method](run, spec.parameters)
        return Unlearned(
            weights=opening.save(run.network, store),
            seconds=trace.seconds,
            passes=trace.passes,
            course={"steps": trace.steps, "curve": trace.curve, **run.judged},
            blobs={
                f"{name}.safetensors": store.put(pack(kept, {"rows": spec.retain.digest}))
                for name, kept in run.kept.items()
            },
        )


def probe(spec: UnlearnSpec, steps: int, store: BlobStore, monitor: Monitor) -> dict[str, Any]:
    """What forgetting would take: see `workers.methods.probe`. The spec's method is not run.

    Raises:
        DataFault, Cancelled, BlobMissing, BlobDamaged, WrongWeights: as above.
    """
    with surroundings(spec.environment) as device:
        run = opening.run(spec, store, device, monitor)
        return probing.probe(run, steps=steps, precision=spec.recipe.precision)


def readiness(
    spec: ReadinessSpec, store: BlobStore, monitor: Monitor, *, rows: int, iterations: int
) -> dict[str, Any]:
    """How hard deletions will be: see `workers.methods.readiness`.

    Raises:
        NoStep: the network has a layer without a second derivative.
        DataFault, Cancelled, BlobMissing, BlobDamaged, WrongWeights: as above.
    """
    with surroundings(spec.environment) as device:
        load_rows = opening.loader(spec, store, device, monitor)
        network = opening.stored_network(spec.version, spec.data, store)
        subject = Subject(
            network=network.to(device),
            rows=load_rows(spec.rows),
            validation=load_rows(spec.validation),
            recipe=spec.recipe,
            beginning=opening.beginning(spec),
            doubts=None if spec.learned is None else opening.doubts(spec.learned, spec.rows, store),
            seed=spec.seed,
            monitor=monitor,
        )
        return measured_readiness(subject, rows=rows, iterations=iterations)


def _precision(wanted: Precision, device: torch.device) -> str:
    return str(autocast_dtype(wanted, device) or torch.float32).removeprefix("torch.")


def _backdoor(network: Network, test: RowSource, poison: BadNets) -> dict[str, dict[str, int]]:
    found = answers(network, {"test": test, "triggered": triggered(test, poison)})
    return backdoor(found["test"], found["triggered"], poison.target)
