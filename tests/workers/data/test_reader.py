from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_store.rows import RowSet
from workers.data.reader import CHUNK_BYTES, CHUNK_ROWS, rows_a_chunk, wanted_between


@given(st.sets(st.integers(0, 100)), st.integers(0, 110), st.integers(0, 40))
def test_wanted_rows_of_a_stretch(wanted: set[int], start: int, length: int) -> None:
    """They are those of the set that lie in it, in ascending order, wherever it begins and ends."""
    found = wanted_between(RowSet.of(wanted), start, start + length)
    assert found.tolist() == sorted(ordinal for ordinal in wanted if start <= ordinal < start + length)
    assert found.dtype == np.int64


def test_every_row_is_wanted_by_default() -> None:
    """No set means all rows."""
    assert wanted_between(None, 3, 6).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("size", "rows"), [(0, CHUNK_ROWS), (16, CHUNK_ROWS), (CHUNK_BYTES // 10, 10), (2 * CHUNK_BYTES, 1)]
)
def test_a_chunk_is_bounded_by_rows_and_by_bytes(size: int, rows: int) -> None:
    """Large rows come few at a time, but at least one does."""
    assert rows_a_chunk(size) == rows
