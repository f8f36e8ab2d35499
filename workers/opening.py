"""From what is stored to what is computed with: networks, rows, and what is on record about them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.jobs.params import Architecture
from models_store.blobs import BlobDamaged, BlobMissing, BlobStore
from models_store.checkpoints import pack, unpack
from models_store.rows import RowSet
from workers.data.batches import RowSource
from workers.data.lazy import Loader
from workers.data.poison import without_backdoor
from workers.data.sampling import sampled_places
from workers.data.seeds import generator
from workers.methods.counterfactual import standing_within
from workers.methods.curvature import flat
from workers.methods.past import Past, State
from workers.methods.run import Run
from workers.monitor import Monitor
from workers.nets.factory import build
from workers.nets.network import Network
from workers.spec import (
    DataSpec,
    Learned,
    ReadinessSpec,
    Taught,
    TrainSpec,
    UnlearnSpec,
    ValidateSpec,
    Version,
)
from workers.training.confidence import scores

MOST_JUDGED_ROWS = 10_000  # of larger training and retain sets a sample of this size is judged


class WrongWeights(Exception):
    """The stored weights do not belong to the architecture they are said to have."""


def loader(
    spec: TrainSpec | ValidateSpec | UnlearnSpec | ReadinessSpec,
    store: BlobStore,
    device: torch.device,
    monitor: Monitor,
) -> Loader:
    """A function that brings rows of the data set onto the device, and raises DataChanged if they differ."""
    return Loader.of(spec.data, spec.environment, store, device=device, monitor=monitor)


def new_network(architecture: Architecture, data: DataSpec, seed: int) -> Network:
    """The network as a training of this seed begins with it."""
    return build(architecture, data.num_classes, data.image_shape, generator(seed, "initialise"))


def stored_network(version: Version, data: DataSpec, store: BlobStore) -> Network:
    """The version's network, whose weights must be exactly its architecture's tensors."""
    network = new_network(version.architecture, data, seed=0)
    try:
        network.load(*unpack(store.get(version.weights)))
    except ValueError as fault:
        raise WrongWeights(f"blob {version.weights} does not hold the weights of its architecture") from fault
    return network


def save(network: Network, store: BlobStore) -> str:
    """Keep the network's weights; their digest."""
    return store.put(pack(network.tensors(), network.facts()))


def run(spec: UnlearnSpec, store: BlobStore, device: torch.device, monitor: Monitor) -> Run:
    """All that a method is given."""
    load_rows = loader(spec, store, device, monitor)
    forget, retain = load_rows(spec.forget), load_rows(spec.retain)
    return Run(
        network=stored_network(spec.original, spec.data, store).to(device),
        retain=retain,
        forget=forget,
        validation=load_rows(spec.validation),
        kin=_kin(spec, load_rows),
        standing=None if spec.learned is None else _standing(spec, spec.learned, (forget, retain), store),
        past=None if spec.taught is None else _past(spec, spec.taught, load_rows, store),
        recipe=spec.recipe,
        seed=spec.seed,
        monitor=monitor,
    )


def beginning(spec: ReadinessSpec) -> Tensor | None:
    """All weights before the first step of the training, one vector [d]; None if it was not here."""
    if spec.taught is None:
        return None
    network = new_network(spec.version.architecture, spec.data, spec.taught.seed)
    return flat([weight.detach() for weight in network.parameters()])


def doubts(learned: Learned, rows: RowSet, store: BlobStore) -> NDArray[np.float64] | None:
    """How late each of the rows was learned: 1 - mean confidence, float64 [n]; None if that is missing."""
    try:
        doubts = scores(store.get(learned.blob), learned.rows)
    except (BlobMissing, BlobDamaged):
        return None
    return doubts[np.searchsorted(ordinals(learned.rows), ordinals(rows))]


def _past(spec: UnlearnSpec, taught: Taught, load_rows: Loader, store: BlobStore) -> Past:
    """The training on record; what it kept and learned from is opened only by who wants it."""

    def opener(digest: str) -> Callable[[], State]:
        return lambda: unpack(store.get(digest))

    whole = not len(taught.rows - spec.forget - spec.retain)
    places = np.searchsorted(ordinals(taught.rows), ordinals(spec.forget))
    return Past(
        count=len(taught.rows),
        forgotten=torch.from_numpy(places),
        rows=(lambda: load_rows(taught.rows)) if whole else None,
        seed=taught.seed,
        device_type=taught.device_type,
        snapshots=[opener(digest) for digest in taught.snapshots],
    )


def _standing(
    spec: UnlearnSpec, learned: Learned, sources: tuple[RowSource, RowSource], store: BlobStore
) -> Tensor | None:
    """Where each row to forget stands among its class's training rows; None if confidences are missing."""
    forget, retain = (doubts(learned, part, store) for part in (spec.forget, spec.retain))
    if forget is None or retain is None:
        return None
    mine, others = (
        (torch.from_numpy(part), source.labels.cpu())
        for part, source in zip((forget, retain), sources, strict=True)
    )
    return standing_within(*mine, others).to(sources[0].device)


def _kin(spec: UnlearnSpec, load_rows: Loader) -> RowSource:
    """Unseen rows that are most like those to forget; where these are poisoned, to a clean network."""
    poison = spec.data.poison
    if poison is None or len(spec.forget - poison.rows):
        return load_rows(spec.kin)
    return without_backdoor(load_rows, spec.validation, poison.parameters)


def ordinals(rows: RowSet) -> NDArray[np.int64]:
    """The rows' numbers, ascending: int64 [n]."""
    return np.fromiter(rows, dtype=np.int64, count=len(rows))


def sample(rows: RowSet, seed: int) -> RowSet:
    """At most `MOST_JUDGED_ROWS` of the rows, drawn without replacement."""
    if len(rows) <= MOST_JUDGED_ROWS:
        return rows
    return RowSet.of(ordinals(rows)[sampled_places(len(rows), MOST_JUDGED_ROWS, seed)].tolist())
