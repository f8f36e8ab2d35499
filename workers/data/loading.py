"""Rows decoded into one array, their images checked against what was registered."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models_store.rows import RowSet
from workers.data.manifest import Manifest, raise_if_any
from workers.data.reader import BadFormat, Chunk, DataMissing, Images, Reader, Shape, UnreadableImage


def load(
    reader: Reader, wanted: RowSet, image_shape: Shape, manifest: Manifest | None = None
) -> tuple[Images, NDArray[np.int64]]:
    """Decode the wanted rows, in the order of their ordinals, into one array.

    Args:
        reader: the data set.
        wanted: which rows; there may be none.
        image_shape: height, width and channels that every image was registered with.
        manifest: the hashes that the images were registered with; None: they are not compared.

    Returns:
        Images uint8 [n, H, W, C] and labels int64 [n].

    Raises:
        DataChanged: rows hold other images than when they were registered.
        DataFault: a row is missing, does not decode, or has another shape.
    """
    labels = np.empty(len(wanted), dtype=np.int64)
    images = np.empty((len(wanted), *image_shape), dtype=np.uint8)
    changed = [np.empty(0, dtype=np.int64)]
    found = 0
    for chunk in reader.chunks(wanted):
        place = slice(found, found + len(chunk))
        found += len(chunk)
        if manifest is not None:
            changed.append(manifest.changed(chunk.ordinals, content_hashes(reader, chunk)))
        if not any(map(len, changed)):  # else only the other changed rows are still of interest
            labels[place] = chunk.labels
            for number, image in enumerate(chunk.images):
                images[place][number] = decoded(reader, int(chunk.ordinals[number]), image, image_shape)
    raise_if_any(np.concatenate(changed))
    if found != len(wanted):
        raise DataMissing(f"{len(wanted) - found} of {len(wanted)} wanted rows are not in the data set")
    return images, labels


def content_hashes(reader: Reader, chunk: Chunk) -> list[bytes]:
    """The hashes of the chunk's images, as they are kept in a manifest."""
    return [reader.content_hash(image) for image in chunk.images]


def decoded(reader: Reader, ordinal: int, image: bytes, image_shape: Shape) -> Images:
    """A row's image, uint8 [H, W, C], of the shape that was registered. Raises DataFault, naming the row."""
    try:
        pixels = reader.decode(image)
    except UnreadableImage as fault:
        raise UnreadableImage(f"row {ordinal}: {fault}") from fault
    if pixels.shape != image_shape:
        raise BadFormat(f"row {ordinal} has shape {pixels.shape}, not {image_shape}")
    return pixels
