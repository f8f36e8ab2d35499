"""Training a network on what it was to forget, to see how fast that comes back."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from workers.audit.relearning import Curve
from workers.data.batches import Batches, RowSource
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.training.evaluate import hits
from workers.training.gradients import Differentiable
from workers.training.objectives import cross_entropy
from workers.training.optimiser import Sgd
from workers.training.tally import Tally

MEASURED: Final = (0, 1, 2, 4, 8, 16, 32)  # steps after which the accuracy on F is read
MOST_ROWS: Final = 1_000  # of a larger F only so many are relearned
_BATCH_ROWS = 64
_MOMENTUM = 0.9
_SHARE = 0.1  # of the recipe's learning rate


def relearn(
    network: Network, forget: RowSource, *, learning_rate: float, seed: int, monitor: Monitor
) -> Curve:
    """The accuracy on F after so many steps of plain training on it. The network is changed.

    SGD with momentum at a tenth of the rate that the network was trained with, on the rows as they are.
    Running statistics stay as they are: F has too few rows to move them by, and a single one has no variance.

    Args:
        learning_rate: the recipe's.
        seed: decides the batches, the same for every network.
    """
    batches = Batches(forget, batch_size=_BATCH_ROWS, seed=seed)
    network.eval()
    model = Differentiable(network)
    descent = Sgd(model.weights, momentum=_MOMENTUM, weight_decay=0.0)
    accuracies = [_accuracy(network, forget)]
    for step in range(MEASURED[-1]):
        monitor.check_cancelled()
        gradient = model.gradient(cross_entropy(batches.at(step), Tally(), "forget"))
        descent.step(gradient, _SHARE * learning_rate)
        if step + 1 in MEASURED:
            accuracies.append(_accuracy(network, forget))
    return Curve(np.array(MEASURED, dtype=np.int64), np.array(accuracies))


@torch.inference_mode()
def _accuracy(network: Network, rows: RowSource) -> float:
    return float(hits(network, rows).double().mean())
