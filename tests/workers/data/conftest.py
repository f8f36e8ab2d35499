"""Data sets on disk, sound and faulty."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


@pytest.fixture
def pixels() -> Pixels:
    """12 random RGB images of 6 rows and 5 columns, uint8 [12, 6, 5, 3]."""
    return np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)


@pytest.fixture
def png() -> Callable[[Pixels], bytes]:
    """Encode one image without loss."""

    def encode(image: Pixels) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, format="PNG")
        return buffer.getvalue()

    return encode


@pytest.fixture
def columns(pixels: Pixels, png: Callable[[Pixels], bytes]) -> dict[str, list[Any]]:
    """The columns of a sound parquet file of 12 rows; tests spoil some of the values."""
    return {
        "sample_id": [f"photo-{number}" for number in range(12)],
        "image": [{"bytes": png(image), "path": None} for image in pixels],
        "label": [number % 3 for number in range(12)],
        "person": [f"person-{number % 4}" for number in range(12)],
        "part": ["train", "test", None] * 4,
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write columns as a parquet file in small row groups, and say where it is."""

    def write(columns: dict[str, list[Any]], name: str = "data.parquet", **metadata: str) -> Path:
        path = tmp_path / name
        table = pa.table(columns).replace_schema_metadata(metadata)
        pq.write_table(table, path, row_group_size=5)
        return path

    return write
