"""What a network says about rows it is not learning from."""

from __future__ import annotations

import torch
from torch import Tensor

from workers.data.batches import RowSource
from workers.nets.network import Network

_BATCH_ROWS = 1024


@torch.inference_mode()
def evaluate(network: Network, rows: RowSource) -> Tensor:
    """Float32 logits [n, K] of the rows in order, in evaluation mode, on the network's device; n may be 0."""
    network.eval()
    parts = [network(batch.images) for batch in rows.in_order(_BATCH_ROWS)]
    return torch.cat(parts or [network(rows.take(slice(0, 0)).images)])


@torch.inference_mode()
def accuracy(network: Network, rows: RowSource, places: Tensor | None = None) -> dict[str, int]:
    """How many of the rows, or of those at `places`, are classified as labelled: {"correct", "n"}."""
    network.eval()
    correct = torch.zeros((), dtype=torch.int64, device=rows.device)
    for batch in rows.in_order(_BATCH_ROWS, places):
        correct += (network(batch.images).argmax(1) == batch.labels).sum()
    return {"correct": int(correct), "n": len(rows) if places is None else len(places)}
