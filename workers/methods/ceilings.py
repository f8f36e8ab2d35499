"""How far the loss of a row to forget may be raised: to that of a row that was never seen, and no further.

Ascent on cross-entropy has no end: what is pushed long enough is treated worse than any unseen row, which is
a trace too, and the network is ruined on the way. A retrained network loses about as much on F as the
original loses on unseen rows of the same classes, some of which it still gets right. So each row of F gets a
ceiling from their distribution, in order: the row that the original knows best gets the lowest.
"""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import Precision
from workers.data.batches import RowSource
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.methods.run import Run
from workers.nets.network import Network
from workers.training.evaluate import evaluate
from workers.training.precision import autocast_dtype

FEWEST_ROWS: Final = 20  # fewer unseen rows tell no distribution
_MOST_ROWS = 1000  # of the unseen ones are read


def loss_ceilings(run: Run, kind: Literal["none", "unseen"], precision: Precision) -> Tensor:
    """A ceiling for the cross-entropy of every row of F, by the network at its original weights.

    The unseen rows are those of the same people, if there are enough, else validation rows. If there are too
    few of either, or `kind` is none, the ceilings are infinite.

    Returns:
        float32 [len(F)], on the rows' device.
    """
    for unseen in (run.kin, run.validation) if kind == "unseen" else ():
        if unseen is not None and len(unseen) >= FEWEST_ROWS:
            autocast = autocast_dtype(precision, unseen.device)
            seed = derived_seed(run.seed, "ceilings")
            places = torch.from_numpy(sampled_places(len(unseen), _MOST_ROWS, seed)).to(unseen.index_device)
            return matched_by_rank(
                _losses(run.network, run.forget, None, autocast),
                run.forget.labels,
                _losses(run.network, unseen, places, autocast),
                unseen.labels[places],
                known=torch.unique(run.retain.labels),
            )
    return torch.full((len(run.forget),), torch.inf, device=run.forget.device)


def matched_by_rank(
    losses: Tensor, labels: Tensor, unseen_losses: Tensor, unseen_labels: Tensor, *, known: Tensor
) -> Tensor:
    """For each row the quantile of its class's unseen losses that its own loss is of its class's losses.

    A class that is not among the `known` ones has no ceiling: of what remains, nothing could have taught it.
    One without enough unseen rows takes the losses of all of them.

    Args:
        losses: float [n], those of the rows to forget.
        labels: int64 [n], their classes.
        unseen_losses: float [m].
        unseen_labels: int64 [m].
        known: the classes of the rows that remain.
    """
    ceilings = torch.full_like(losses, torch.inf)
    for number in torch.unique(labels):
        if not (known == number).any():
            continue
        own = labels == number
        like = unseen_labels == number
        pool = unseen_losses[like] if int(like.sum()) >= FEWEST_ROWS else unseen_losses
        ranks = losses[own].argsort(stable=True).argsort(stable=True)
        ceilings[own] = torch.quantile(pool, (ranks.to(pool.dtype) + 0.5) / len(ranks))
    return ceilings


def _losses(network: Network, rows: RowSource, places: Tensor | None, autocast: torch.dtype | None) -> Tensor:
    logits = evaluate(network, rows, places, autocast=autocast).float()
    labels = rows.labels if places is None else rows.labels[places]
    return functional.cross_entropy(logits, labels, reduction="none")
