"""What a network says about rows it is not learning from."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from workers.data.batches import RowSource
from workers.nets.network import Network

_BATCH_ROWS = 1024
_BATCH_ROWS_ON_CPU = 64  # what its caches hold: 1.8 times as fast for a ResNet-8 as the larger batches


@torch.inference_mode()
def evaluate(
    network: Network,
    rows: RowSource,
    places: Tensor | None = None,
    *,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Logits [n, K] of the rows, or of those at `places`, in order, in evaluation mode; n may be 0.

    They are float32, or what `autocast` says, on the network's device.
    """
    network.eval()
    with torch.autocast(rows.device.type, autocast, enabled=autocast is not None):
        return torch.cat([network(images) for images in image_batches(rows, places)])


def image_batches(rows: RowSource, places: Tensor | None = None) -> Iterator[Tensor]:
    """The images of the rows, or of those at `places`, in order; of no rows, one batch without any."""
    if not (len(rows) if places is None else len(places)):
        yield rows.take(slice(0, 0)).images
    for batch in rows.in_order(_batch_rows(rows), places):
        yield batch.images


def hits(
    network: Network,
    rows: RowSource,
    places: Tensor | None = None,
    *,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Whether each of the rows, or of those at `places`, is classified as labelled: bool [n]."""
    labels = rows.labels if places is None else rows.labels[places]
    return evaluate(network, rows, places, autocast=autocast).argmax(1) == labels


def accuracy(
    network: Network,
    rows: RowSource,
    places: Tensor | None = None,
    *,
    autocast: torch.dtype | None = None,
) -> dict[str, int]:
    """How many of the rows, or of those at `places`, are classified as labelled: {"correct", "n"}."""
    right = hits(network, rows, places, autocast=autocast)
    return {"correct": int(right.sum()), "n": len(right)}


def _batch_rows(rows: RowSource) -> int:
    return _BATCH_ROWS_ON_CPU if rows.device.type == "cpu" else _BATCH_ROWS
