"""Which rows train, which judge, and which stay unseen: drawn once per data set version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from app.jobs.params import RoleShares, Split


def draw_roles(splits: Sequence[str | None], shares: RoleShares, seed: int) -> list[Split]:
    """Give every row one role: a given split is kept, the rows without one are drawn.

    Of the n rows without a split, round(share * n) become holdout, validation and, where the data set brings
    no test rows of its own, test; the others train. The same arguments give the same roles.
    """
    roles = np.array([split or "" for split in splits], dtype="U10")
    drawn = np.random.default_rng(seed).permutation(np.flatnonzero(roles == ""))
    wanted: list[tuple[Split, float]] = [("holdout", shares.holdout), ("validation", shares.validation)]
    if not (roles == "test").any():
        wanted.append(("test", shares.test))
    start = 0
    for role, share in wanted:
        end = start + round(share * len(drawn))
        roles[drawn[start:end]] = role
        start = end
    roles[drawn[start:]] = "train"
    return cast("list[Split]", roles.tolist())
