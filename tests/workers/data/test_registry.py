"""Readers by name, wherever the data set lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from pydantic import ValidationError

from app.jobs import params
from models_store.rows import RowSet
from workers.data.reader import BadFormat, DataMissing, RandomAccess
from workers.data.registry import READERS, open_reader


def test_every_declared_reader_exists() -> None:
    """What the API offers and what the workers have are the same names."""
    assert READERS.keys() == params.READERS.keys()


def test_a_reader_is_opened_by_name() -> None:
    """Options arrive as plain data and are validated."""
    assert open_reader("sklearn_digits", "", {"seed": 3}).count == 1797
    with pytest.raises(ValidationError):
        open_reader("sklearn_digits", "", {"seed": -1, "colour": "red"})


def test_an_unknown_reader_fails_loudly() -> None:
    """There is no default reader."""
    with pytest.raises(KeyError):
        open_reader("csv", "", {})


@pytest.mark.parametrize("path", ["../x.parquet", "/etc/passwd", "a/../../b", "a\\b", "a\0b"])
def test_file_paths_stay_relative(path: str) -> None:
    """A listed file cannot point out of the location."""
    with pytest.raises(ValidationError):
        params.reader_options("parquet", {"files": [{"path": path}]})


def test_schemas_describe_the_options() -> None:
    """Every reader's options have a JSON schema that admits no others."""
    for name, info in params.READERS.items():
        schema = params.reader_schema(name)
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == set(params.plain_data(info.options()))


@pytest.fixture(params=["npz", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path, columns: Any, pixels: Any, write: Any) -> Path:
    """A data set in one file."""
    if request.param == "parquet":
        return write(columns)  # type: ignore[no-any-return]
    np.savez(tmp_path / "data.npz", x=pixels, y=np.arange(12) % 3)
    return tmp_path / "data.npz"


def test_a_bucket_is_read_like_a_folder(file: Path, s3_url: str) -> None:
    """The same rows from an object store, all or some, from front to back."""
    url, name = f"{s3_url}/{file.name}", file.suffix[1:]
    with fsspec.open(url, "wb") as there:
        there.write(file.read_bytes())
    near, far = open_reader(name, str(file), {}), open_reader(name, url, {})
    assert not isinstance(far, RandomAccess)
    assert (near.count, near.class_names) == (far.count, far.class_names)
    for wanted in (None, RowSet.of([2, 9])):
        pairs = list(zip(near.chunks(wanted), far.chunks(wanted), strict=True))
        assert pairs
        for here, there in pairs:
            assert np.array_equal(here.ordinals, there.ordinals)
            assert list(here.sample_ids) == list(there.sample_ids)
            assert list(here.images) == list(there.images)


def test_a_bucket_of_parquet_files_is_one_data_set(
    columns: Any, write: Callable[..., Path], s3_url: str
) -> None:
    """In the order of their names, as in a folder."""
    content = write(columns).read_bytes()
    for name in ("b.parquet", "a.parquet", "notes.txt"):
        with fsspec.open(f"{s3_url}/{name}", "wb") as file:
            file.write(content)
    assert open_reader("parquet", s3_url, {}).count == 24


@pytest.mark.parametrize("name", ["npz", "parquet", "image_folder", "torchvision"])
def test_an_empty_bucket_is_missing(name: str, s3_url: str) -> None:
    """There is no data set at the URL."""
    with pytest.raises((DataMissing, BadFormat)):
        open_reader(name, f"{s3_url}/nothing", {})
