"""Weights files on their way in and out of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import lru_cache

from app.config import settings
from app.errors import Fault, Invalid, NotFound
from app.registry.schemas import Uploaded
from models_store.blobs import BlobMissing, BlobStore
from models_store.safetensors_header import NotSafetensors, read_header


@lru_cache(maxsize=4)
def _store_at(url: str) -> BlobStore:
    return BlobStore(url)


def store() -> BlobStore:
    """The artefact store of the settings."""
    return _store_at(settings().store)


@dataclass(frozen=True)
class Kept:
    """What was uploaded, and whether the store had it before."""

    view: Uploaded
    is_new: bool


async def receive(digest: str, chunks: AsyncIterator[bytes]) -> Kept:
    """Take a weights file in, piece by piece, if it is a whole safetensors file with this digest.

    Raises:
        Invalid: it is not; nothing of it is left.
    """
    known = await asyncio.to_thread(store().has, digest)
    with store().draft() as draft:
        async for chunk in chunks:
            await asyncio.to_thread(draft.write, chunk)
        if draft.digest != digest:
            detail = f"the file's SHA-256 is {draft.digest}"
            raise Invalid(faults=[Fault(pointer="digest", detail=detail)])
        try:
            header = await asyncio.to_thread(read_header, draft.path)
        except NotSafetensors as reason:
            raise Invalid(faults=[Fault(pointer="body", detail=str(reason))]) from None
        view = Uploaded(weights=digest, bytes=draft.size, tensors=len(header.tensors))
        await asyncio.to_thread(draft.keep)
    return Kept(view, is_new=not known)


def size_of(digest: str) -> int:
    """How large the file is, in bytes. Raises NotFound."""
    try:
        return store().size(digest)
    except BlobMissing:
        raise NotFound from None
