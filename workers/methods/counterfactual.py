"""What a network that never saw F would make of it: the accuracy to come to, and losses not to exceed.

Such a network meets F as the original meets unseen rows. But F may be easier or harder than these: for that
there is a row's standing among the training rows of its class, by how late it was learned, which foretells
how a retrained network will do on it. None of the rows that are read here is one that the audit judges by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import Precision
from workers.data.batches import RowSource
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.nets.network import Network
from workers.training.evaluate import evaluate
from workers.training.precision import autocast_dtype

FEWEST_ROWS: Final = 20  # fewer unseen rows tell nothing
_MOST_ROWS = 1000  # of the unseen ones are read
_AGREEMENT = 0.74  # of standing and retrained loss, as normal scores: a rank correlation of 0.72 was measured
_NODES = 101  # of the integral over what standing does not tell; fewer where F is large
_MOST_POSITIONS = 10_000_000


class Subjects(Protocol):
    """The rows that a method is given."""

    @property
    def retain(self) -> RowSource: ...

    @property
    def forget(self) -> RowSource: ...

    @property
    def validation(self) -> RowSource | None: ...

    @property
    def kin(self) -> RowSource | None: ...

    @property
    def standing(self) -> Tensor | None: ...


@dataclass(frozen=True)
class Counterfactual:
    """Of F, by a network that never saw it: the accuracy, and a loss for each row, float32 [len(F)].

    A class of which no row remains cannot be known any more: it counts 0, and the losses are those of rows of
    other classes if they were labelled so; infinite, if there are no unseen rows of other classes.
    """

    accuracy: float
    losses: Tensor


def counterfactual(
    network: Network, rows: Subjects, *, precision: Precision, seed: int
) -> Counterfactual | None:
    """Guess it from 20 or more unseen rows of the same people, else from validation rows; None from fewer.

    Unseen rows of a class, in the order of their losses, are a scale. A row of F stands on it where it stands
    among the training rows of its class; without knowledge of that, or beside its people's own rows, where it
    stands within F. Standing foretells a retrained network's loss but in part, so each row is spread over the
    scale, by a normal copula. The row that stands lowest gets the lowest of the losses that come out: that
    takes the least from the network.
    """
    for unseen in (rows.kin, rows.validation):
        if unseen is not None and len(unseen) >= FEWEST_ROWS:
            break
    else:
        return None
    autocast = autocast_dtype(precision, unseen.device)
    places = torch.from_numpy(sampled_places(len(unseen), _MOST_ROWS, derived_seed(seed, "unseen")))
    scale = Scale.of(network, unseen, places.to(unseen.index_device), autocast)
    standing = rows.standing
    if standing is None or unseen is rows.kin:
        own = Scale.of(network, rows.forget, None, autocast)
        standing = standing_within(own.losses, own.labels)
    return expected(standing, rows.forget.labels, scale, known=torch.unique(rows.retain.labels))


@dataclass(frozen=True)
class Scale:
    """Unseen rows, as a network sees them.

    Attributes:
        surprise: What the loss would be with each class for a label, float [n, K].
        hits: Whether they are classified as labelled, bool [n].
        labels: int64 [n].
    """

    surprise: Tensor
    hits: Tensor
    labels: Tensor

    @classmethod
    def of(
        cls, network: Network, rows: RowSource, places: Tensor | None, autocast: torch.dtype | None
    ) -> Scale:
        """All rows, or those at these places."""
        labels = rows.labels if places is None else rows.labels[places]
        logits = evaluate(network, rows, places, autocast=autocast).float()
        return cls(-functional.log_softmax(logits, 1), logits.argmax(1) == labels, labels)

    @cached_property
    def losses(self) -> Tensor:
        """With the rows' own labels, float [n]."""
        return self.surprise.gather(1, self.labels[:, None]).squeeze(1)

    def like(self, number: int) -> Scale:
        """Those of a class; all, if these are too few."""
        here = self.labels == number
        if int(here.sum()) < FEWEST_ROWS:
            return self
        return Scale(self.surprise[here], self.hits[here], self.labels[here])

    def unlike(self, number: int) -> Scale:
        """Those of other classes, labelled with this one: never rightly."""
        there = self.labels != number
        labels = torch.full_like(self.labels[there], number)
        return Scale(self.surprise[there], torch.zeros_like(self.hits[there]), labels)

    def losses_at(self, positions: Tensor) -> Tensor:
        """The losses at positions in (0, 1), in any shape."""
        return _at(self.losses[self._order], positions)

    def accuracy_at(self, positions: Tensor) -> Tensor:
        """The mean accuracy over positions in (0, 1)."""
        return _at(self.hits[self._order].to(self.losses.dtype), positions).mean()

    @cached_property
    def _order(self) -> Tensor:
        return self.losses.argsort(stable=True)


def expected(standing: Tensor, labels: Tensor, scale: Scale, *, known: Tensor) -> Counterfactual:
    """The counterfactual of rows by their standing.

    Args:
        standing: float64 [n] in (0, 1), within each class.
        labels: int64 [n].
        scale: of the unseen rows.
        known: the classes of which rows remain.
    """
    losses = torch.full((len(labels),), torch.inf, device=labels.device)
    right = 0.0
    for number in torch.unique(labels).tolist():
        here = torch.nonzero(labels == number).squeeze(1)
        pool = scale.like(number) if (known == number).any() else scale.unlike(number)
        if not len(pool.labels):
            continue
        spread = _spread(standing[here])
        ranked = here[standing[here].argsort(stable=True)]
        losses[ranked] = pool.losses_at(_at(spread.flatten().sort().values, _middles(spread))).float()
        right += float(pool.accuracy_at(spread)) * len(here)
    return Counterfactual(right / len(labels), losses)


def standing_within(scores: Tensor, labels: Tensor, others: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Where each row stands among the rows of its class: the share that scores lower, equals counting half.

    Args:
        scores: float [n].
        labels: int64 [n].
        others: scores float [m] and labels int64 [m] of further rows that they stand among.

    Returns:
        float64 [n] in (0, 1).
    """
    standing = torch.empty(len(scores), dtype=torch.float64, device=scores.device)
    for number in torch.unique(labels):
        here = labels == number
        mine = scores[here]
        among = mine if others is None else torch.cat([mine, others[0][others[1] == number]])
        ordered = among.sort().values
        below, upto = (torch.searchsorted(ordered, mine, right=right) for right in (False, True))
        standing[here] = (below + upto).double() / (2 * len(ordered))
    return standing


def _spread(standing: Tensor) -> Tensor:
    """Positions [n, nodes] on the scale, equally likely, of rows that stand where `standing` says."""
    count = max(5, min(_NODES, _MOST_POSITIONS // len(standing)))
    nodes = torch.special.ndtri(_middles(torch.empty(count, device=standing.device)))
    normal = torch.special.ndtri(standing)[:, None]
    spread: Tensor = torch.special.ndtr(_AGREEMENT * normal + math.sqrt(1 - _AGREEMENT**2) * nodes)
    return spread


def _middles(rows: Tensor) -> Tensor:
    return (torch.arange(len(rows), device=rows.device).double() + 0.5) / len(rows)


def _at(ordered: Tensor, positions: Tensor) -> Tensor:
    """Values of an ascending row at positions in (0, 1), the i-th of n standing at (i + 1/2) / n."""
    place = (positions * len(ordered) - 0.5).clamp(0, len(ordered) - 1)
    low = place.floor().long()
    high = (low + 1).clamp(max=len(ordered) - 1)
    return torch.lerp(ordered[low].double(), ordered[high].double(), place - low)
