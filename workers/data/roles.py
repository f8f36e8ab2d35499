"""Which rows train, which judge, and which stay unseen: drawn once per data set version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from app.jobs.params import RoleShares, Split
from models_store.rows import RowSet

ROLES: tuple[Split, ...] = ("train", "validation", "holdout", "test")
UNDECIDED = 255  # the code of a row without a split; a role's code is its place in ROLES
UNKNOWN = 254  # that of a split which is none of the roles
_BLOCK_ROWS = 1_000_000  # are drawn at once

Codes = NDArray[np.uint8]
_CODES: Mapping[str | None, int] = {None: UNDECIDED, **{role: code for code, role in enumerate(ROLES)}}


def split_codes(splits: Sequence[str | None] | None, count: int) -> Codes:
    """The splits of `count` rows, a byte each (None: no row has one)."""
    if splits is None:
        return np.full(count, UNDECIDED, dtype=np.uint8)
    return np.fromiter((_CODES.get(split, UNKNOWN) for split in splits), dtype=np.uint8, count=count)


def draw_roles(splits: Codes, shares: RoleShares, seed: int) -> dict[str, RowSet]:
    """Give every row one role: a given split is kept, the rows without one are drawn.

    Of the n rows without a split, round(share * n) become holdout, validation and, where the data set brings
    no test rows of its own, test; the others train. Every choice of them is equally likely. The rows are
    drawn in blocks: how many of each role a block gets is drawn from the multivariate hypergeometric
    distribution, which ones by a permutation. The same arguments give the same roles.

    Args:
        splits: a code of each row, uint8 [n].
        shares: of the rows that are drawn.
        seed: of the draw.
    """
    generator = np.random.default_rng(seed)
    remaining = _wanted(splits, shares)
    roles = splits.copy()
    for start in range(0, len(splits), _BLOCK_ROWS):
        block = roles[start : start + _BLOCK_ROWS]
        undecided = np.flatnonzero(block == UNDECIDED)
        counts = _draw_counts(generator, remaining, len(undecided))
        block[generator.permutation(undecided)] = np.repeat(_DRAWN, counts)
        remaining -= counts
    return {role: _rows_with(roles, code) for code, role in enumerate(ROLES)}


_DRAWN = np.array([_CODES[role] for role in ("holdout", "validation", "test", "train")], dtype=np.uint8)


def _wanted(splits: Codes, shares: RoleShares) -> NDArray[np.int64]:
    """How many rows are to be drawn for each of `_DRAWN`."""
    count = int((splits == UNDECIDED).sum())
    brings_tests = bool((splits == _CODES["test"]).any())
    parts = (shares.holdout, shares.validation, 0.0 if brings_tests else shares.test)
    kept_out = [round(part * count) for part in parts]
    return np.array([*kept_out, count - sum(kept_out)], dtype=np.int64)


def _draw_counts(
    generator: np.random.Generator, remaining: NDArray[np.int64], size: int
) -> NDArray[np.int64]:
    """How many rows of a block each role gets; the last block gets what remains, without a draw."""
    if size == remaining.sum():
        return remaining.copy()
    return generator.multivariate_hypergeometric(remaining, size, method="marginals")


def _rows_with(roles: Codes, code: int) -> RowSet:
    return RowSet(b"".join(_bitmaps(roles, code)).rstrip(b"\0"))


def _bitmaps(roles: Codes, code: int) -> Iterator[bytes]:
    """The bitmap in pieces, so that no array of the whole length is made on the way."""
    for start in range(0, len(roles), _BLOCK_ROWS):
        piece = roles[start : start + _BLOCK_ROWS] == code
        yield np.packbits(piece, bitorder="little").tobytes()
