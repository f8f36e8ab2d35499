"""The attack that knows the method: shadows of the version forget some rows as the network did.

Each shadow was trained on half of the version's rows and half of the held-out ones. From each the method
under audit, with the settings under audit, removes the rows of F, and of as many held-out ones, that it was
trained on. So of each of these rows there are networks that forgot it and networks that never saw it
(`workers.audit.shadow_attack`). Where no shadow may have seen F any more, nothing is unlearned: then there
are only networks that never saw a row, for the attack that needs no others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import opening
from workers.answers import Answers, answers, key_of
from workers.audit.features import margins
from workers.audit.matching import match_classes
from workers.audit.outputs import BoolArray, FloatArray, Sets
from workers.audit.shadow_attack import Shadows, shadow_figures
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.methods.registry import METHODS
from workers.monitor import Monitor, WithoutCheckpoints
from workers.nets.network import Network
from workers.spec import ShadowSpec, UnlearnSpec

_MOST_ROWS = 2_000  # of F; of H as many


@dataclass(frozen=True)
class Bench:
    """What every shadow is put through.

    Attributes:
        forget: F, or a sample of it.
        holdout: as many rows of H, mixed by class as F is.
    """

    spec: UnlearnSpec
    store: BlobStore
    device: torch.device
    monitor: Monitor
    forget: RowSet
    holdout: RowSet

    @classmethod
    def of(cls, spec: UnlearnSpec, store: BlobStore, device: torch.device, monitor: Monitor) -> Bench:
        """With the rows drawn by the spec's seed."""
        seed = derived_seed(spec.seed, "shadow attack")
        forget = _sample(spec.forget, _MOST_ROWS, seed)
        load_rows = opening.loader(spec, store, device, monitor)
        labels = [load_rows(rows).labels.cpu().numpy() for rows in (forget, spec.holdout)]
        match = match_classes(
            labels[0], labels[1], rng=np.random.default_rng(seed), distance=spec.class_distance
        )
        alike = RowSet.of(opening.ordinals(spec.holdout)[match.rows].tolist())
        return cls(spec, store, device, monitor, forget, _sample(alike, len(forget), seed))

    def figures(self, known: Answers) -> dict[str, Any] | None:
        """The attack's figures on the unlearned network; None as `shadow_figures`, or without a row."""
        if self.spec.done is None or not len(self.forget) or not len(self.holdout):
            return None
        own = _phi(self._answers(self._network(self.spec.done.weights)))
        forgetting = any(len(shadow.rows & self.forget) for shadow in self.spec.shadows)
        phi = []
        for number, shadow in enumerate(self.spec.shadows):
            self.monitor.check_cancelled()
            self.monitor.progress("shadows", number, len(self.spec.shadows))
            phi.append(_phi(self._shadowed(shadow, known, forgetting=forgetting)))
        seen = np.stack([self._seen(shadow) for shadow in self.spec.shadows])
        return shadow_figures(
            own,
            is_forget=np.arange(len(own)) < len(self.forget),
            shadows=Shadows(np.stack(phi), unlearned=seen & forgetting, out=~seen),
            rng=np.random.default_rng(derived_seed(self.spec.seed, "shadow attack")),
        )

    def _seen(self, shadow: ShadowSpec) -> BoolArray:
        """Which rows of F, then of H, the shadow was trained on: bool [n]."""
        return np.array([row in shadow.rows for rows in (self.forget, self.holdout) for row in rows])

    def _shadowed(self, shadow: ShadowSpec, known: Answers, *, forgetting: bool) -> Sets:
        """The shadow's answers after it forgot its part; computed once, whatever interrupts the job."""
        parts = [shadow.weights, self.forget.digest, self.holdout.digest]
        if forgetting:
            parts += [self.spec.method, str(self.spec.parameters), str(self.spec.seed)]
        return known.of(
            key_of(*parts),
            lambda: self._answers(self._unlearned(shadow) if forgetting else self._network(shadow.weights)),
        )

    def _unlearned(self, shadow: ShadowSpec) -> Network:
        forget = shadow.rows & (self.forget | self.holdout)
        if not len(forget):
            return self._network(shadow.weights)
        spec = replace(
            self.spec,
            original=replace(self.spec.original, weights=shadow.weights),
            forget=forget,
            retain=shadow.rows - forget - self.spec.forget,
            learned=None,
            taught=None,
            seed=derived_seed(self.spec.seed, "shadow", shadow.weights),
        )
        run = opening.run(spec, self.store, self.device, WithoutCheckpoints(self.monitor))
        METHODS[spec.method](run, spec.parameters)
        return run.network

    def _network(self, weights: str) -> Network:
        version = replace(self.spec.original, weights=weights)
        return opening.stored_network(version, self.spec.data, self.store).to(self.device)

    def _answers(self, network: Network) -> Sets:
        load_rows = opening.loader(self.spec, self.store, self.device, self.monitor)
        return answers(network, {"forget": load_rows(self.forget), "holdout": load_rows(self.holdout)})


def _phi(sets: Sets) -> FloatArray:
    phi: FloatArray = np.concatenate([margins(sets["forget"]), margins(sets["holdout"])])
    return phi


def _sample(rows: RowSet, most: int, seed: int) -> RowSet:
    return RowSet.of(opening.ordinals(rows)[sampled_places(len(rows), most, seed)].tolist())
