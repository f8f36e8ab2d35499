"""Millions of short texts without an object for each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

_ERRORS = "surrogatepass"  # file names need not be Unicode; what is odd in them comes back as it was


class Texts:
    """Texts one after the other in one buffer: their UTF-8 and 8 bytes each."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._content = bytearray()
        self._ends = array("q", [0])
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._content += text.encode(errors=_ERRORS)
        self._ends.append(len(self._content))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> str:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self._content[self._ends[place] : self._ends[place + 1]].decode(errors=_ERRORS)

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def __bool__(self) -> bool:
        """Whether any of the texts is not empty."""
        return bool(self._content)

    def at(self, places: Iterable[int | np.integer]) -> list[str]:
        """The texts at these places."""
        return [self[int(place)] for place in places]
