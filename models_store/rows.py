"""A set of rows of one data set version: a bitmap over row ordinals with a content address.

Which rows a network was trained on is the fact every deletion starts from, so it is kept exactly: one bit a
row, ten million rows in 1.25 MB. Plain Python integers do the set algebra, so the API needs no numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

_ORDINALS_OF_BYTE = tuple(tuple(bit for bit in range(8) if value >> bit & 1) for value in range(256))


@dataclass(frozen=True)
class RowSet:
    """An immutable set of row ordinals: ordinal i is bit i % 8 of byte i // 8, no trailing zero bytes."""

    bits: bytes

    @classmethod
    def of(cls, ordinals: Iterable[int]) -> RowSet:
        """The set of these ordinals (each at least 0, in any order, repeats allowed)."""
        bits = bytearray()
        for ordinal in ordinals:
            if ordinal < 0:
                raise ValueError("row ordinals start at 0")
            byte = ordinal >> 3
            if byte >= len(bits):
                bits.extend(
                    bytes(byte + 1 - len(bits) + len(bits) // 8)
                )  # grows in proportion: each byte once
            bits[byte] |= 1 << (ordinal & 7)
        return cls(bytes(bits.rstrip(b"\0")))

    @classmethod
    def below(cls, count: int) -> RowSet:
        """The first `count` rows: 0, 1, … count - 1."""
        whole, rest = divmod(count, 8)
        return cls(b"\xff" * whole + (bytes([(1 << rest) - 1]) if rest else b""))

    @classmethod
    def _of_integer(cls, value: int) -> RowSet:
        return cls(value.to_bytes((value.bit_length() + 7) // 8, "little"))

    @cached_property
    def _integer(self) -> int:
        return int.from_bytes(self.bits, "little")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bitmap, in hexadecimal: equal sets have equal digests."""
        return hashlib.sha256(self.bits).hexdigest()

    def __len__(self) -> int:
        return self._integer.bit_count()

    def __contains__(self, ordinal: int) -> bool:
        byte = ordinal >> 3
        return 0 <= byte < len(self.bits) and bool(self.bits[byte] >> (ordinal & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        """The ordinals in ascending order."""
        for index, value in enumerate(self.bits):
            if value:
                base = index << 3
                for bit in _ORDINALS_OF_BYTE[value]:
                    yield base + bit

    def __and__(self, other: RowSet) -> RowSet:
        return self._of_integer(self._integer & other._integer)

    def __or__(self, other: RowSet) -> RowSet:
        return self._of_integer(self._integer | other._integer)

    def __sub__(self, other: RowSet) -> RowSet:
        return self._of_integer(self._integer & ~other._integer)
