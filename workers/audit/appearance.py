"""What can be seen of a row without any network, for the attack that asks none."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from workers.audit.outputs import FloatArray
from workers.data.batches import RowSource

_THUMBNAIL = 4  # pixels a side
_BATCH_ROWS = 256
_FULL = 255.0


def appearance(rows: RowSource) -> FloatArray:
    """Mean and deviation of each channel and a thumbnail of 4 x 4 pixels: float64 [n, (2 + 16) C].

    In units of the largest pixel. Classes are left out: H is matched to F in these (`matching`).
    """
    parts = [_seen(batch.images) for batch in rows.in_order(_BATCH_ROWS)]
    together = torch.cat(parts or [_seen(rows.take(slice(0, 0)).images)])
    found: FloatArray = together.cpu().numpy().astype(np.float64)
    return found


def _seen(images: Tensor) -> Tensor:
    pixels = images.float() / _FULL
    mean = pixels.mean((2, 3))
    deviation = (pixels - mean[:, :, None, None]).square().mean((2, 3)).sqrt()
    thumbnail = functional.adaptive_avg_pool2d(pixels, _THUMBNAIL).flatten(1)
    return torch.cat([mean, deviation, thumbnail], 1)
