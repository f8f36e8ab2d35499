"""The audit of an unlearned network: what is asked of which network, and the figures of what they answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import opening
from workers.answers import Answers, Rows, all_answers, key_of
from workers.audit.appearance import appearance
from workers.audit.backdoor import backdoor_figures
from workers.audit.entanglement import entanglement_figures
from workers.audit.figures import Looks, audit_figures
from workers.audit.outputs import Networks, SetName, Sets
from workers.audit.plots import margin_histograms
from workers.audit.relearn import MOST_ROWS, relearn
from workers.audit.relearning import Curve, relearning_figures
from workers.data.batches import RowSource
from workers.data.lazy import Loader
from workers.data.poison import triggered
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.spec import AuditOutcome, Unlearned, UnlearnSpec
from workers.training.surroundings import surroundings


def audit(
    spec: UnlearnSpec, store: BlobStore, monitor: Monitor, *, known: Answers | None = None
) -> AuditOutcome:
    """Measure the original, the unlearned network and the references, if there are any, on the same rows.

    `known`: what earlier audits on this data set computed of original and references; this one adds to it.

    Figures: those of `workers.audit.figures`, and cost {"seconds": {"unlearning", "audit", "reference"},
    "passes": {"unlearning"}}, None where it is not known; and the method's course, as `Unlearned` has it.
    With references also those of `workers.audit.relearning` and `workers.audit.entanglement`, else None.

    Raises:
        ValueError: the spec names no unlearned weights.
        DataFault, Cancelled, BlobMissing, BlobDamaged, WrongWeights: as `workers.pipeline.unlearn`.
    """
    if spec.done is None:
        raise ValueError("there is nothing to audit before the method has run")
    started = time.perf_counter()
    with surroundings(spec.environment) as device:
        room = _Room.of(spec, store, device, monitor)
        measured = room.measured(spec.done, known or Answers())
        figures = room.figures(measured)
        if measured.references:
            figures |= room.deep_figures(spec.done, measured)
    histograms = margin_histograms(measured, seed=room.seed, class_distance=spec.class_distance)
    figures["cost"] = _cost(spec, spec.done, audit_seconds=time.perf_counter() - started)
    figures["course"] = dict(spec.done.course)
    if spec.data.poison is not None:
        figures["backdoor"] = backdoor_figures(measured.named, spec.data.poison.parameters.target)
    return AuditOutcome(figures=figures, blobs={"margins.svg": store.put(histograms.encode())})


@dataclass(frozen=True)
class _Room:
    """All that an audit works with."""

    spec: UnlearnSpec
    store: BlobStore
    device: torch.device
    monitor: Monitor
    rows: Rows
    digests: tuple[str, ...]

    @classmethod
    def of(cls, spec: UnlearnSpec, store: BlobStore, device: torch.device, monitor: Monitor) -> _Room:
        sets = _audited_sets(spec)
        load_rows = opening.loader(spec, store, device, monitor)
        rows = _loaded(spec, sets, load_rows)
        return cls(spec, store, device, monitor, rows, tuple(each.digest for each in sets.values()))

    @property
    def seed(self) -> int:
        return derived_seed(self.spec.seed, "audit")

    def measured(self, done: Unlearned, known: Answers) -> Networks:
        """What every network answers. The unlearned one is measured for this audit alone."""
        others = (self.spec.original.weights, *_references(self.spec))
        weights = (done.weights, *others)
        found: list[Sets] = []
        for number, each in enumerate(weights):
            self.monitor.check_cancelled()
            self.monitor.progress("audit", number, len(weights))
            found.append(self._answers(each, known))
        unlearned, original, *references = found
        if done.weights not in others:
            known.forget(self._key(done.weights))
        self.monitor.progress("audit", len(weights), len(weights))
        return Networks(original, unlearned, tuple(references))

    def _answers(self, weights: str, known: Answers) -> Sets:
        # The same noise for every audit on these rows, so that what is known of a network can be used again.
        noise = derived_seed(0, "noise", *self.digests)
        return known.of(self._key(weights), lambda: all_answers(self.network(weights), self.rows, seed=noise))

    def _key(self, weights: str) -> str:
        return key_of(weights, *self.digests, str(self.spec.data.poison and self.spec.data.poison.parameters))

    def network(self, weights: str) -> Network:
        version = replace(self.spec.original, weights=weights)
        return opening.stored_network(version, self.spec.data, self.store).to(self.device)

    def figures(self, measured: Networks) -> dict[str, Any]:
        return audit_figures(
            measured,
            holdout_match=self.spec.holdout_match,
            seed=self.seed,
            class_distance=self.spec.class_distance,
            looks=Looks(appearance(self.rows["forget"]), appearance(self.rows["holdout"])),
        )

    def deep_figures(self, done: Unlearned, measured: Networks) -> dict[str, Any]:
        """What takes training, or long: only where there are references to read it by."""
        return {
            "relearning": self._relearning(done) if len(self.rows["forget"]) else None,
            "entanglement": {name: self._entanglement(sets) for name, sets in measured.named.items()},
        }

    def _relearning(self, done: Unlearned) -> dict[str, Any]:
        places = sampled_places(len(self.rows["forget"]), MOST_ROWS, derived_seed(self.seed, "relearned"))
        forget = self.rows["forget"].take(torch.from_numpy(places).to(self.rows["forget"].index_device))
        return relearning_figures(
            original=self._curve(self.spec.original.weights, forget),
            unlearned=self._curve(done.weights, forget),
            references=[self._curve(weights, forget) for weights in _references(self.spec)],
        )

    def _curve(self, weights: str, forget: RowSource) -> Curve:
        return relearn(
            self.network(weights),
            forget,
            learning_rate=self.spec.recipe.learning_rate,
            seed=derived_seed(self.seed, "relearn"),
            monitor=self.monitor,
        )

    def _entanglement(self, sets: Sets) -> dict[str, Any] | None:
        retain, forget = sets["retain"].features, sets["forget"].features
        if retain is None or forget is None:
            return None
        rng = np.random.default_rng(derived_seed(self.seed, "entanglement"))
        return entanglement_figures(retain, forget, rng=rng)


def _references(spec: UnlearnSpec) -> tuple[str, ...]:
    return spec.references or ((spec.reference,) if spec.reference else ())


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


def _cost(spec: UnlearnSpec, done: Unlearned, *, audit_seconds: float) -> dict[str, Any]:
    seconds = {
        "unlearning": done.seconds,
        "audit": audit_seconds,
        "reference": spec.reference_seconds,
    }
    return {"seconds": seconds, "passes": {"unlearning": done.passes}}
