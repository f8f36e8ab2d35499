"""Whether uploaded tensors are a network's: every key, shape, type and value, and a forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from workers.nets.network import Network
from workers.spec import Fault

_MOST_NAMED = 20


def misfits(network: Network, tensors: Mapping[str, Tensor], num_classes: int) -> tuple[Fault, ...]:
    """Everything that keeps `tensors` from being the network's own; nothing if they are."""
    expected = network.tensors()
    shared = [name for name in expected if name in tensors]
    faults = [
        *_named("the network has no tensor", (name for name in tensors if name not in expected)),
        *_named("the file lacks the tensor", (name for name in expected if name not in tensors)),
        *_named("the wrong shape has", _shapes(expected, tensors, shared)),
        *_named("the wrong type has", _types(expected, tensors, shared)),
        *_named("values that are not finite numbers are in", _not_finite(tensors, shared)),
    ]
    if classes := _class_mismatch(expected, tensors, shared, num_classes):
        faults.insert(0, classes)
    return tuple(Fault(at="weights", detail=detail) for detail in faults)


def _named(what: str, names: Iterable[str]) -> Iterator[str]:
    """A fault for each, up to a number; the others are counted."""
    found = list(names)
    yield from (f"{what} {name}" for name in found[:_MOST_NAMED])
    if len(found) > _MOST_NAMED:
        yield f"{what} {len(found) - _MOST_NAMED} others"


def _shapes(
    expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], shared: list[str]
) -> Iterator[str]:
    for name in shared:
        if tensors[name].shape != expected[name].shape:
            yield f"{name}: {tuple(tensors[name].shape)}, not {tuple(expected[name].shape)}"


def _types(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], shared: list[str]) -> Iterator[str]:
    for name in shared:
        if tensors[name].dtype != expected[name].dtype:
            given, wanted = (str(each[name].dtype).removeprefix("torch.") for each in (tensors, expected))
            yield f"{name}: {given}, not {wanted}"


def _not_finite(tensors: Mapping[str, Tensor], shared: list[str]) -> Iterator[str]:
    for name in shared:
        tensor = tensors[name]
        if tensor.is_floating_point() and (wrong := int((~tensor.isfinite()).sum())):
            yield f"{name}: {wrong} of {tensor.numel()}"


def _class_mismatch(
    expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], shared: list[str], num_classes: int
) -> str | None:
    """That the file is of a network with another number of classes, if its last layer alone says so."""
    for name in reversed(shared):
        given, wanted = tensors[name].shape, expected[name].shape
        if given[1:] == wanted[1:] and given[:1] != wanted[:1] and wanted[:1] == (num_classes,):
            return f"the file is of a network with {given[0]} classes; the data set has {num_classes}"
    return None


@torch.inference_mode()
def forward_fault(network: Network, images: Tensor, num_classes: int) -> Fault | None:
    """What goes wrong when the network classifies real images uint8 [B, C, H, W]; None if nothing does."""
    network.eval()
    try:
        logits = network(images)
    except Exception as error:
        # Whatever a network raises of images that are too small, or of another number of channels.
        detail = (
            f"it does not classify images of shape {tuple(images.shape[1:])}: {type(error).__name__}: {error}"
        )
        return Fault(at="architecture", detail=detail)
    if logits.shape != (len(images), num_classes):
        detail = (
            f"it gives outputs of shape {tuple(logits.shape[1:])}, not one for each of {num_classes} classes"
        )
        return Fault(at="architecture", detail=detail)
    if not bool(logits.isfinite().all()):
        return Fault(at="weights", detail="its outputs on real images are not finite numbers")
    return None
