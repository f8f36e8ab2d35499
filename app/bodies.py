"""A body that is too large to hold: received into a temporary file before anything else is done with it."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO

from fastapi import Request


@dataclass(frozen=True)
class Received:
    """What was sent, as a file at its beginning, and its SHA-256."""

    file: IO[bytes]
    digest: str


@asynccontextmanager
async def received(request: Request) -> AsyncIterator[Received]:
    """The request's body in a file that is gone afterwards. While a slow caller sends, nothing is held."""
    seen = hashlib.sha256()
    with tempfile.TemporaryFile(prefix="expunge-upload-") as file:
        async for chunk in request.stream():
            seen.update(chunk)
            await asyncio.to_thread(file.write, chunk)
        await asyncio.to_thread(file.seek, 0)
        yield Received(file, seen.hexdigest())
