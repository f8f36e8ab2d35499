"""Readers by name: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.jobs.params import TorchvisionDataset, reader_options
from workers.data.digits import DigitsReader
from workers.data.image_folder import open_image_folder
from workers.data.npz import open_npz
from workers.data.parquet import ParquetReader
from workers.data.reader import Reader
from workers.data.torchvision_sets import SETS, download, open_torchvision

READERS: Mapping[str, Callable[[str, Any], Reader]] = {
    "sklearn_digits": DigitsReader,
    "npz": open_npz,
    "parquet": ParquetReader,
    "image_folder": open_image_folder,
    "torchvision": open_torchvision,
}


def open_reader(name: str, location: str, options: Mapping[str, Any]) -> Reader:
    """The data set at `location`, as reader `name` sees it.

    Raises:
        KeyError: there is no such reader.
        pydantic.ValidationError: naming every fault in `options`.
        DataFault: there is no such file, or it is of another format.
    """
    return READERS[name](location, reader_options(name, options))


def fetch(name: str, location: str, options: Mapping[str, Any]) -> None:
    """Download the data set to its location if its options ask for that and it is not there yet.

    Raises:
        DataFault: it cannot be downloaded.
    """
    given = reader_options(name, options)
    if isinstance(given, TorchvisionDataset) and given.download:
        download(location, SETS[given.name])
