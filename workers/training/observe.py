"""What an audit takes down of a network on a set of rows: logits and features, of clean or noisy images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.data.batches import RowSource
from workers.data.seeds import generator
from workers.nets.network import Network
from workers.nets.penultimate import penultimate
from workers.training.evaluate import image_batches

_LARGEST_PIXEL = 255


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on the images, the same for every network.

    The noise of a row follows from the seed and the row's place in its set alone: neither the size of a
    batch, nor which rows are asked for, nor the device changes it. Rows at the same place of two sets get
    the same noise; give the sets seeds of their own.

    Attributes:
        deviation: standard deviation, as a share of the range of a pixel (255).
        seed: at least 0.
    """

    deviation: float
    seed: int

    def on(self, images: Tensor, places: list[int]) -> Tensor:
        """float32 [B, C, H, W] in [0, 255], of uint8 images at these places of their set."""
        drawn = [
            torch.randn(images.shape[1:], generator=generator(self.seed, "noise", place)) for place in places
        ]
        if not drawn:
            return images.float()
        noise = torch.stack(drawn).to(images.device)
        noisy = images.float().add_(noise, alpha=self.deviation * _LARGEST_PIXEL)
        return noisy.clamp_(0, _LARGEST_PIXEL)


@dataclass(frozen=True)
class Observed:
    """One network on one set of n rows, in order; on the CPU.

    Attributes:
        logits: float64 [n, K], of a float32 forward pass in evaluation mode.
        features: float64 [n, d], penultimate, of the same pass; None if there are none
            (`workers.nets.penultimate`).
        labels: int64 [n].
    """

    logits: npt.NDArray[np.float64]
    features: npt.NDArray[np.float64] | None
    labels: npt.NDArray[np.int64]


@torch.inference_mode()
def observe(
    network: Network, rows: RowSource, places: Tensor | None = None, *, noise: Noise | None = None
) -> Observed:
    """Logits and penultimate features of the rows, or of those at `places`, in order, from one pass.

    Raises:
        DataFault: from the rows.
    """
    network.eval()
    labels = rows.labels if places is None else rows.labels[places]
    every = list(range(len(rows))) if places is None else places.tolist()
    logits: list[Tensor] = []
    features: list[Tensor | None] = []
    done = 0
    with penultimate(network) as features_of:
        for images in image_batches(rows, places):
            here = every[done : done + len(images)]
            logits.append(network(images if noise is None else noise.on(images, here)))
            features.append(features_of(logits[-1]))
            done += len(images)
    found = [part for part in features if part is not None]
    return Observed(
        logits=_joined(logits),
        features=_joined(found) if len(found) == len(logits) else None,
        labels=labels.cpu().numpy(),
    )


def _joined(parts: list[Tensor]) -> npt.NDArray[np.float64]:
    joined: npt.NDArray[np.float64] = torch.cat(parts).cpu().double().numpy()
    return joined
