from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_store.rows import RowSet

ordinals = st.sets(st.integers(0, 300))


@given(st.integers(0, 40))
def test_the_first_rows(count: int) -> None:
    """The set of all rows below a number is the one made of their ordinals, with the same digest."""
    assert RowSet.below(count).digest == RowSet.of(range(count)).digest


@given(ordinals, ordinals)
def test_algebra_is_that_of_sets(a: set[int], b: set[int]) -> None:
    """Intersection, union, difference, size, order and membership agree with Python's sets."""
    left, right = RowSet.of(a), RowSet.of(b)
    assert list(left & right) == sorted(a & b)
    assert list(left | right) == sorted(a | b)
    assert list(left - right) == sorted(a - b)
    assert len(left) == len(a)
    assert all((i in left) == (i in a) for i in range(-1, 310))


@given(ordinals, ordinals)
def test_equal_sets_have_one_address(a: set[int], b: set[int]) -> None:
    """Two sets are equal, bit for bit and in their digest, exactly when they hold the same rows."""
    left = (RowSet.of(a) | RowSet.of(b)) - RowSet.of(b)
    assert left == RowSet.of(a - b)
    assert left.digest == RowSet.of(a - b).digest
    assert (RowSet.of(a).digest == RowSet.of(b).digest) == (a == b)


def test_layout_is_the_documented_one() -> None:
    """Row i is bit i % 8 of byte i // 8, and the digest is the SHA-256 of those bytes."""
    rows = RowSet.of([9, 0, 9])
    assert rows.bits == bytes([0b1, 0b10])
    assert rows.digest == hashlib.sha256(rows.bits).hexdigest()


def test_nothing_is_the_empty_bitmap() -> None:
    """The empty set has no bits and is false."""
    assert RowSet.of([]).bits == b""
    assert not RowSet.of([])


def test_negative_rows_are_refused() -> None:
    """There is no row before the first."""
    with pytest.raises(ValueError, match="start at 0"):
        RowSet.of([3, -1])
