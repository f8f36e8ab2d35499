"""URLs of object stores, held to a form in which one lies below another exactly if it begins with it.

Only object stores: they have no links, no `..` and no redirections that could lead elsewhere.
"""

from __future__ import annotations

import re

SCHEMES = ("az", "gcs", "gs", "memory", "s3")
# A bucket, with neither credentials nor a port beside it, and names of which no library makes others:
# no escapes, patterns, queries or chained file systems.
_FORM = re.compile(rf"(?:{'|'.join(SCHEMES)})://[A-Za-z0-9][A-Za-z0-9._-]*(?:/[^/\\%?#*\[\]{{}}|]+)*")


def object_url(text: str) -> str:
    """The URL without a slash at its end. Raises ValueError, which does not repeat it."""
    url = text.removesuffix("/")
    if not _FORM.fullmatch(url) or not url.isprintable() or "::" in url:
        raise ValueError(f"must be a plain URL of an object store ({', '.join(f'{s}://' for s in SCHEMES)})")
    if not {".", ".."}.isdisjoint(url.split("/")):
        raise ValueError("must not have '.' or '..' in its path")
    return url


def is_below(url: str, prefix: str) -> bool:
    """Whether `url` is `prefix` or lies below it; both come from `object_url`."""
    return url == prefix or url.startswith(f"{prefix}/")
