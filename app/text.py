"""Text as every part of the service can hold it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _storable(text: str) -> str:
    """PostgreSQL stores every character but NUL; half a surrogate pair, which JSON can escape, is none."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    if b"\0" in encoded:
        raise ValueError("must not hold the character NUL")
    return text


Text = Annotated[str, AfterValidator(_storable)]
