"""The audit of an unlearned network: what a job asks of which network, and the figures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import opening
from workers.answers import Answers, Rows
from workers.audit import pictures
from workers.audit.backdoor import backdoor_figures
from workers.audit.outputs import SetName
from workers.audit.plots import margin_histograms
from workers.data.batches import RowSource
from workers.data.lazy import Loader
from workers.data.poison import triggered
from workers.data.seeds import derived_seed
from workers.examination import Examination, Exhibit
from workers.monitor import Monitor
from workers.shadowing import Bench
from workers.spec import AuditOutcome, Unlearned, UnlearnSpec
from workers.training.surroundings import surroundings


def audit(
    spec: UnlearnSpec, store: BlobStore, monitor: Monitor, *, known: Answers | None = None
) -> AuditOutcome:
    """Measure the original, the unlearned network and the references, if there are any, on the same rows.

    `known`: what earlier audits on this data set computed of original and references; this one adds to it.

    Figures: those of `Examination.figures`, and cost {"seconds": {"unlearning", "audit", "reference"},
    "passes": {"unlearning"}}, None where it is not known; and the method's course, as `Unlearned` has it.
    With references also `relearning` and those of `Examination.papers`, with a picture of each, and
    "tables": {name of a picture: {"header": [...], "rows": [[...]]}}, which say the same in numbers. With
    shadows also `shadow_attack`.

    Raises:
        ValueError: the spec names no unlearned weights.
        DataFault, Cancelled, BlobMissing, BlobDamaged, WrongWeights: as `workers.pipeline.unlearn`.
    """
    if spec.done is None:
        raise ValueError("there is nothing to audit before the method has run")
    started = time.perf_counter()
    shown: dict[str, _Shown] = {}
    with surroundings(spec.environment) as device:
        room = _examination(spec, spec.done, store, device, monitor)
        known = Answers() if known is None else known
        measured = room.measured(known)
        figures = room.figures(measured)
        if room.references:
            figures |= {"relearning": room.relearning(), **room.papers(measured)}
            shown = dict(_shown(figures))
            figures["tables"] = {name: each.table._asdict() for name, each in shown.items()}
        if spec.shadows:
            figures["shadow_attack"] = Bench.of(spec, store, device, monitor).figures(known)
    drawn = {name: each.picture for name, each in shown.items()}
    drawn["margins.svg"] = margin_histograms(measured, seed=room.seed, class_distance=spec.class_distance)
    figures["cost"] = _cost(spec, spec.done, audit_seconds=time.perf_counter() - started)
    figures["course"] = dict(spec.done.course)
    if spec.data.poison is not None:
        figures["backdoor"] = backdoor_figures(measured.named, spec.data.poison.parameters.target)
    return AuditOutcome(
        figures=figures, blobs={name: store.put(picture.encode()) for name, picture in drawn.items()}
    )


def _examination(
    spec: UnlearnSpec, done: Unlearned, store: BlobStore, device: torch.device, monitor: Monitor
) -> Examination:
    def exhibit(weights: str) -> Exhibit:
        version = replace(spec.original, weights=weights)
        return Exhibit(weights, lambda: opening.stored_network(version, spec.data, store).to(device))

    sets = _audited_sets(spec)
    return Examination(
        original=exhibit(spec.original.weights),
        unlearned=exhibit(done.weights),
        references=tuple(exhibit(weights) for weights in spec.references),
        rows=_loaded(spec, sets, opening.loader(spec, store, device, monitor)),
        about_rows=(
            *(rows.digest for rows in sets.values()),
            str(spec.data.poison and spec.data.poison.parameters),
        ),
        holdout_match=spec.holdout_match,
        class_distance=spec.class_distance,
        learning_rate=spec.recipe.learning_rate,
        seed=derived_seed(spec.seed, "audit"),
        monitor=monitor,
    )


def _audited_sets(spec: UnlearnSpec) -> dict[SetName, RowSet]:
    return {
        "retain": opening.sample(spec.retain, derived_seed(spec.seed, "retain sample")),
        "forget": spec.forget,
        "holdout": spec.holdout,
        "test": spec.test,
    }


def _loaded(spec: UnlearnSpec, sets: Mapping[SetName, RowSet], load_rows: Loader) -> Rows:
    rows: dict[SetName, RowSource] = {name: load_rows(each) for name, each in sets.items()}
    if spec.data.poison is not None:
        rows["triggered"] = triggered(rows["test"], spec.data.poison.parameters)
    return rows


class _Shown(NamedTuple):
    """A picture, and what it shows in at most some twenty rows of numbers."""

    picture: str
    table: pictures.Table


def _shown(figures: Mapping[str, Any]) -> Iterator[tuple[str, _Shown]]:
    """Of what the papers show, by the picture's name: how the networks compare, then each one by itself."""
    tangle, sharp = figures["entanglement"], figures["sharpness"]
    yield (
        "entanglement.svg",
        _Shown(pictures.entanglement_picture(tangle), pictures.entanglement_table(tangle)),
    )
    yield "sharpness.svg", _Shown(pictures.sharpness_picture(sharp), pictures.sharpness_table(sharp))
    for name, ground in figures["landscape"].items():
        features = figures["feature_map"][name]
        yield (
            f"landscape-{name}.svg",
            _Shown(pictures.landscape_picture(ground), pictures.landscape_table(ground)),
        )
        yield (
            f"features-{name}.svg",
            _Shown(pictures.feature_map_picture(features), pictures.feature_map_table(features)),
        )


def _cost(spec: UnlearnSpec, done: Unlearned, *, audit_seconds: float) -> dict[str, Any]:
    seconds = {
        "unlearning": done.seconds,
        "audit": audit_seconds,
        "reference": spec.reference_seconds,
    }
    return {"seconds": seconds, "passes": {"unlearning": done.passes}}
