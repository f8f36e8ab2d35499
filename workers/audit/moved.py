"""Which weights unlearning moved, and how far.

Fast audit, issue 6. That little moved proves nothing, nor does much; but a network of which nothing moved
beyond the last layer still has every feature that it learnt from F, whatever it answers (Jeon et al. 2024).

    {"moved": {"tensors": n,                                              parameters and running statistics
        "changed": n,                                                     of these
        "share": share of their values that changed,                      None of no value
        "relative": |after - before| / |before|,                          None: not finite, or |before| = 0
        "head_only": bool,                                                parameters of the last layer alone
        "layers": [{"name", "relative", "changed": share}]}}              at most 20, most moved first

|.| is the Euclidean norm over all values. Counters are left out. Running statistics of batch normalisation
count among the tensors but not for `head_only`: training the last layer alone moves them too. A tensor whose
`relative` is None comes before all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_MOST_NAMED = 20


def moved_figures(before: nn.Module, after: nn.Module) -> dict[str, Any]:
    """All of them, in the layout above. Of a `Network`, give the body: names are then those of its file.

    Both must be on one device.

    Raises:
        ValueError: the two do not have the same tensors.
    """
    pairs = _pairs(before, after)
    moves = [_Move.of(name, *pair) for name, pair in pairs.items()]
    changed = [move for move in moves if move.changed]
    values = sum(move.values for move in moves)
    learned = {name for name, _ in before.named_parameters()}
    elsewhere = learned & {move.name for move in changed} - _of_last_layer(before)
    whole = _Move(
        "",
        values,
        sum(move.changed for move in moves),
        math.hypot(*(move.distance for move in moves)),
        math.hypot(*(move.length for move in moves)),
    )
    return {
        "tensors": len(moves),
        "changed": len(changed),
        "share": whole.changed / values if values else None,
        "relative": whole.relative,
        "head_only": bool(learned & {move.name for move in changed}) and not elsewhere,
        "layers": [
            {"name": move.name, "relative": move.relative, "changed": move.changed / move.values}
            for move in sorted(changed, key=_Move.order)[:_MOST_NAMED]
        ],
    }


@dataclass(frozen=True)
class _Move:
    """How one tensor, or all of them, moved."""

    name: str
    values: int
    changed: int
    distance: float
    length: float  # before

    @classmethod
    def of(cls, name: str, before: Tensor, after: Tensor) -> _Move:
        same = before.eq(after) | (before.isnan() & after.isnan())
        one, two = before.double(), after.double()
        return cls(
            name,
            before.numel(),
            int((~same).sum()),
            distance=float(torch.linalg.vector_norm(two - one)),
            length=float(torch.linalg.vector_norm(one)),
        )

    @property
    def relative(self) -> float | None:
        if not self.changed:
            return 0.0
        ratio = self.distance / self.length if self.length else math.inf
        return ratio if math.isfinite(ratio) else None

    def order(self) -> float:
        return -math.inf if self.relative is None else -self.relative


def _pairs(before: nn.Module, after: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Of every name the two tensors, counters left out."""
    old, new = before.state_dict(), after.state_dict()
    if {name: tensor.shape for name, tensor in old.items()} != {
        name: each.shape for name, each in new.items()
    }:
        raise ValueError("two networks of other tensors cannot be compared")
    return {
        name: (tensor.detach(), new[name].detach())
        for name, tensor in old.items()
        if tensor.is_floating_point()
    }


def _of_last_layer(network: nn.Module) -> set[str]:
    """The names of the parameters of the module that was registered last of those that have any."""
    layers = [
        {f"{path}.{name}".lstrip(".") for name, _ in module.named_parameters(recurse=False)}
        for path, module in network.named_modules()
    ]
    return next((names for names in reversed(layers) if names), set())
