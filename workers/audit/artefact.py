"""What a network is made of, held against what it should be: nothing may stand between weights and answers.

Measured outputs cannot tell an unlearned network from one that looks its answers up: a table that gives for
each row of F what a retrained network would say passes every attack on them. Such a table needs a place to
be: a module, a buffer, a hook, an attribute, a method of its own. Here the original, or any network freshly
built by the same architecture, says which of these there should be, and each further one is named.

Values of parameters and buffers are not compared (`moved` does that), nor is the code of classes: both
networks run the same. A table spread over weights that are there anyway is beyond this; noise on the images
(`workers.training.observe`) is what disturbs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sized
from functools import partial
from types import FunctionType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

_MOST_NAMED = 50
_MACHINERY: Final = frozenset(vars(nn.Module()))  # what every module has: registries, hooks, `training`
_HOOKS: Final = {"_forward_pre_hooks": "pre-hook", "_forward_hooks": "hook"}


def artefact_faults(original: nn.Module, candidate: nn.Module) -> tuple[str, ...]:
    """Everything that the candidate is made of and the original is not, or the other way round, in words.

    Compared are the modules and their classes; names, shapes and types of parameters and buffers, those that
    no file holds included; hooks on the forward pass; methods replaced on one module; and all that modules
    hold besides, however deep in containers. Whether the networks are in training mode does not matter.

    Returns:
        One sentence a fault, 50 at most and then how many more there are; none for two networks of one
        architecture, whatever their weights.
    """
    faults = [*_modules(original, candidate), *_tensors(original, candidate)]
    theirs = dict(original.named_modules())
    for path, module in candidate.named_modules():
        if path in theirs:
            faults += _hooks(path, theirs[path], module)
            faults += _attributes(path, theirs[path], module)
    more = [f"{len(faults) - _MOST_NAMED} more faults"] if len(faults) > _MOST_NAMED else []
    return (*faults[:_MOST_NAMED], *more)


def _modules(original: nn.Module, candidate: nn.Module) -> Iterator[str]:
    ours, theirs = (dict(each.named_modules(remove_duplicate=False)) for each in (candidate, original))
    for path, module in ours.items():
        if path not in theirs:
            if _parent(path) in theirs:  # what is inside is not named as well
                yield f"{_named(path)}, a {_type(module)}, is not part of the original"
        elif type(module) is not type(theirs[path]):
            yield f"{_named(path)} is a {_type(module)}; the original's is a {_type(theirs[path])}"
    for path, module in theirs.items():
        if path not in ours and _parent(path) in ours:
            yield f"{_named(path)}, a {_type(module)} of the original, is missing"
    if ours.keys() == theirs.keys() and list(ours) != list(theirs):
        yield "its modules stand in another order than the original's"


def _tensors(original: nn.Module, candidate: nn.Module) -> Iterator[str]:
    shared = {path for path, _ in original.named_modules()} & {path for path, _ in candidate.named_modules()}
    for kind in ("parameter", "buffer"):
        ours, theirs = (
            dict(getattr(each, f"named_{kind}s")(remove_duplicate=False)) for each in (candidate, original)
        )
        for name, tensor in ours.items():
            if name not in theirs:
                if _parent(name) in shared:
                    yield f"{kind} {name}, {_form(tensor)}, is not part of the original"
            elif _form(tensor) != _form(theirs[name]):
                yield f"{kind} {name} is {_form(tensor)}; the original's is {_form(theirs[name])}"
        for name, tensor in theirs.items():
            if name not in ours and _parent(name) in shared:
                yield f"{kind} {name}, {_form(tensor)}, of the original is missing"


def _hooks(path: str, original: nn.Module, candidate: nn.Module) -> Iterator[str]:
    for registry, kind in _HOOKS.items():
        known = {id(hook) for hook in getattr(original, registry).values()}
        for hook in getattr(candidate, registry).values():
            if id(hook) not in known:
                name = getattr(hook, "__qualname__", _type(hook))
                yield f"{_named(path)} has a forward {kind}, {name}, that the original does not have"


def _attributes(path: str, original: nn.Module, candidate: nn.Module) -> Iterator[str]:
    ours, theirs = (
        {name: value for name, value in vars(each).items() if name not in _MACHINERY}
        for each in (candidate, original)
    )
    for name, value in ours.items():
        if name in theirs:
            if not _alike(value, theirs[name]):
                yield f"{_named(path)} holds another `{name}`, {_described(value)}, than the original"
        elif callable(getattr(type(candidate), name, None)):
            yield f"{_named(path)} has a method `{name}` of its own in place of its class's"
        else:
            yield f"{_named(path)} holds `{name}`, {_described(value)}, which the original does not hold"
    if type(candidate) is type(original):
        for name in theirs:
            if name not in ours:
                yield f"{_named(path)} lacks `{name}`, which the original holds"


def _alike(one: Any, other: Any) -> bool:  # noqa: ANN401 - whatever a module may hold
    """Whether two attributes are the same; of functions and modules, whether they run the same code."""
    if type(one) is not type(other):
        return False
    match one:
        case Tensor():
            alike = _form(one) == _form(other) and torch.equal(one.cpu(), other.cpu())
        case np.ndarray():
            alike = np.array_equal(one, other)
        case Mapping():
            alike = one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
        case list() | tuple() | deque():
            alike = len(one) == len(other) and all(map(_alike, one, other))
        case partial():
            alike = _alike((one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
        case FunctionType():
            alike = one.__code__ is other.__code__  # what it closes over is made anew by every build
        case nn.Module():
            alike = True
        case _:
            alike = bool(one == other)
    return alike


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return _form(value)
    held = f" of {len(value)}" if isinstance(value, Sized) else ""
    arrays = sum(1 for _ in _arrays(value))
    inside = f" with {arrays} tensors or arrays in it" if arrays else ""
    return f"a {_type(value)}{held}{inside}"


def _arrays(value: object) -> Iterator[object]:
    """The tensors and arrays in it, however deep in containers."""
    match value:
        case Tensor() | np.ndarray():
            yield value
        case Mapping():
            yield from _arrays(list(value.values()))
        case list() | tuple() | deque():
            for part in value:
                yield from _arrays(part)


def _form(tensor: Tensor) -> str:
    kind = "tensor" if type(tensor) in (Tensor, nn.Parameter, nn.Buffer) else _type(tensor)
    return f"a {str(tensor.dtype).removeprefix('torch.')} {kind} {list(tensor.shape)}"


def _named(path: str) -> str:
    return path or "the network itself"


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _type(value: object) -> str:
    module = type(value).__module__
    return type(value).__qualname__ if module == "builtins" else f"{module}.{type(value).__qualname__}"
