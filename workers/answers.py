"""What a network answers to the rows of an audit: computed once, kept, used by every figure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import numpy.typing as npt
import torch

from models_store.blobs import BlobStore
from models_store.checkpoints import pack, unpack
from workers.audit.outputs import Outputs, SetName, Sets
from workers.audit.quantisation import quantised
from workers.data.batches import RowSource
from workers.nets.network import Network
from workers.training.observe import Noise, observe

NOISE: Final = 0.05  # standard deviation, as a share of a pixel's range
_BITS: Final = (8, 4)
_ATTACKED: Final[tuple[SetName, ...]] = ("forget", "holdout")

Rows = Mapping[SetName, RowSource]


def answers(network: Network, rows: Rows) -> dict[SetName, Outputs]:
    """Logits and features on each set of rows: one forward pass."""
    return {name: _outputs(network, part) for name, part in rows.items()}


def all_answers(network: Network, rows: Rows, *, seed: int) -> dict[SetName, Outputs]:
    """Those, and on F and H also with noise on the images and under rounded weights: three passes more.

    The noise is drawn by `seed`: every network is shown the same images.
    """
    attacked = [(name, rows[name]) for name in _ATTACKED]
    found = answers(network, rows)
    for place, (name, part) in enumerate(attacked):
        noise = Noise(deviation=NOISE, seed=2 * seed + place)
        found[_under(name, "noisy")] = _without_features(_outputs(network, part, noise))
    for bits in _BITS:
        rounded = quantised(network, bits)
        for name, part in attacked:
            found[_under(name, f"int{bits}")] = _without_features(_outputs(rounded, part))
    return found


def _under(name: SetName, condition: str) -> SetName:
    return cast(SetName, f"{name}_{condition}")


def _outputs(network: Network, rows: RowSource, noise: Noise | None = None) -> Outputs:
    found = observe(network, rows, noise=noise)
    return Outputs(found.logits, found.labels, found.features)


def _without_features(outputs: Outputs) -> Outputs:
    return Outputs(outputs.logits, outputs.labels)


class Answers:
    """The answers of networks, in memory and in the store; what is there is not computed again.

    The key names the weights, the rows of every set and what else decides the answers, so that one network's
    answers serve every audit on the same rows.
    """

    def __init__(
        self,
        store: BlobStore | None = None,
        kept: Mapping[str, str] | None = None,
        note: Callable[[str, str], None] | None = None,
    ) -> None:
        """Without a store they stay in memory.

        Args:
            kept: blobs by their keys.
            note: is told a key and the blob that was put for it.
        """
        self._store = store
        self._kept = dict(kept or {})
        self._note = note
        self._in_memory: dict[str, Sets] = {}

    def of(self, key: str, compute: Callable[[], Sets]) -> Sets:
        """Those under this key, computed if they are nowhere yet."""
        if key not in self._in_memory:
            self._in_memory[key] = self._stored(key) or self._put(key, compute())
        return self._in_memory[key]

    def forget(self, key: str) -> None:
        """Nobody will ask for these again in this process."""
        self._in_memory.pop(key, None)

    def _stored(self, key: str) -> Sets | None:
        if self._store is None or key not in self._kept:
            return None
        return unpacked(self._store.get(self._kept[key]))

    def _put(self, key: str, sets: Sets) -> Sets:
        if self._store is not None and self._note is not None:
            self._kept[key] = self._store.put(packed(sets))
            self._note(key, self._kept[key])
        return sets


def key_of(*parts: str) -> str:
    """One name for all that decides a network's answers."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def packed(sets: Sets) -> bytes:
    """The answers as safetensors. They come from float32 passes, so float32 holds them to the last bit."""
    return pack({name: torch.from_numpy(array) for name, array in _arrays(sets)})


def _arrays(sets: Sets) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for name, outputs in sets.items():
        yield f"{name}.logits", outputs.logits.astype("float32")
        if _plain(name) == name:  # the labels are the same under every condition
            yield f"{name}.labels", outputs.labels
        if outputs.features is not None:
            yield f"{name}.features", outputs.features.astype("float32")


def _plain(name: str) -> str:
    return name.partition("_")[0]


def unpacked(content: bytes) -> dict[SetName, Outputs]:
    """What `packed` wrote."""
    tensors, _ = unpack(content)
    names = sorted({name.rpartition(".")[0] for name in tensors})
    return {cast(SetName, name): _outputs_of(name, tensors) for name in names}


def _outputs_of(name: str, tensors: Mapping[str, torch.Tensor]) -> Outputs:
    features = tensors.get(f"{name}.features")
    return Outputs(
        tensors[f"{name}.logits"].double().numpy(),
        tensors[f"{_plain(name)}.labels"].numpy(),
        None if features is None else features.double().numpy(),
    )
