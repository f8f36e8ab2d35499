from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.data.texts import Texts

_ANY = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs too


@given(st.lists(_ANY))
def test_texts_come_back_as_they_were(texts: list[str]) -> None:
    """Any text, empty ones and names of files that are no Unicode among them."""
    packed = Texts(texts)
    assert list(packed) == texts
    assert packed.at(range(len(texts))) == texts
    assert len(packed) == len(texts)
    assert bool(packed) == any(texts)


@pytest.mark.parametrize("place", [2, -1])
def test_there_is_no_text_beyond_the_last(place: int) -> None:
    """A wrong place is a mistake, not another text."""
    with pytest.raises(IndexError):
        Texts(["a", "b"])[place]
