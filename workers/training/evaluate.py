"""What a network says about rows it is not learning from."""

from __future__ import annotations

import torch
from torch import Tensor

from workers.data.batches import Rows
from workers.nets.network import Network

_BATCH_ROWS = 1024


@torch.inference_mode()
def evaluate(network: Network, rows: Rows) -> Tensor:
    """Float32 logits [n, K] of the rows in order, in evaluation mode, on the network's device; n may be 0."""
    network.eval()
    parts = [network(batch.images) for batch in rows.in_order(_BATCH_ROWS)]
    return torch.cat(parts or [network(rows.images)])


def accuracy(network: Network, rows: Rows) -> dict[str, int]:
    """How many of the rows the network classifies as labelled: {"correct", "n"}."""
    hits = evaluate(network, rows).argmax(1) == rows.labels
    return {"correct": int(hits.sum()), "n": len(rows)}
