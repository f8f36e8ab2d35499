"""Some rows instead of all, where more would tell no more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sampled_places(count: int, most: int, seed: int) -> NDArray[np.int64]:
    """Places of at most `most` of `count` rows, drawn without replacement: int64, ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
