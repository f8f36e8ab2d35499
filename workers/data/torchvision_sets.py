"""CIFAR-10, CIFAR-100, SVHN and Fashion-MNIST, parsed by torchvision from files known to be genuine."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torchvision import datasets
from torchvision.datasets.utils import download_and_extract_archive, download_url, extract_archive

from app.jobs.params import TorchvisionDataset
from models_store.rows import RowSet
from workers.data.place import LocalPlace, Place, place
from workers.data.reader import (
    BadFormat,
    Chunk,
    DataMissing,
    Images,
    Shape,
    pixels_hash,
    rows_a_chunk,
    wanted_between,
)

_LARGEST_FILE = 512 * 1024 * 1024  # bytes: more than any file of these data sets has
_COPY_BYTES = 1024 * 1024


class _File(NamedTuple):
    path: str  # below torchvision's `root`
    md5: str


class _Part(NamedTuple):
    """The training rows or the test rows."""

    images: Images  # [n, H, W, C]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class TorchvisionSet:
    """How one class of torchvision.datasets is used: its files, and how to load and to download them."""

    files: tuple[_File, ...]
    load: Callable[[Path, bool], _Part]  # of `root`; whether the training rows
    class_names: Callable[[Path], tuple[str, ...]]
    download: Callable[[Path], None]


class TorchvisionReader:
    """The rows of both parts, in memory; see `app.jobs.params.TorchvisionDataset`.

    CIFAR's files are pickles, which can run code, and whoever may write to a data root can put others in
    their place. So nothing is parsed but a private copy whose MD5 is the one that torchvision gives for the
    genuine file. (MD5's weakness is that one can make two files alike, not one that is like a given file.)
    """

    def __init__(self, at: Place, kind: TorchvisionSet) -> None:
        """Raises DataFault: a file is missing, or is not the genuine one."""
        with tempfile.TemporaryDirectory(prefix="expunge-torchvision-") as folder:
            root = Path(folder)
            for file in kind.files:
                _copy(at, file, root)
            train, test = (kind.load(root, is_train) for is_train in (True, False))
            self.class_names = kind.class_names(root)
        self._train_rows = len(train.labels)
        self._images = np.concatenate([train.images, test.images])
        self._labels = np.concatenate([train.labels, test.labels])

    @property
    def count(self) -> int:
        return len(self._labels)

    def chunks(self, wanted: RowSet | None = None) -> Iterator[Chunk]:
        step = rows_a_chunk(self._images[0].nbytes)
        for start in range(0, self.count, step):
            ordinals = wanted_between(wanted, start, min(start + step, self.count))
            if len(ordinals):
                yield self._chunk(ordinals)

    def shape(self, image: bytes) -> Shape:  # noqa: ARG002 - every image has the same
        height, width, channels = self._images.shape[1:]
        return (height, width, channels)

    def decode(self, image: bytes) -> Images:
        return np.frombuffer(image, dtype=np.uint8).reshape(self._images.shape[1:])

    def content_hash(self, image: bytes) -> bytes:
        return pixels_hash(image, self._images.shape[1:])

    def _chunk(self, ordinals: NDArray[np.int64]) -> Chunk:
        first_test = self._train_rows
        return Chunk(
            ordinals,
            [f"train-{row}" if row < first_test else f"test-{row - first_test}" for row in ordinals.tolist()],
            self._labels[ordinals],
            [None if row < first_test else "test" for row in ordinals.tolist()],
            None,
            [self._images[row].tobytes() for row in ordinals],
        )


def open_torchvision(location: str, options: TorchvisionDataset) -> TorchvisionReader:
    """The reader of this data set; nothing is downloaded. Raises DataFault."""
    return TorchvisionReader(place(location), SETS[options.name])


def download(location: str, kind: TorchvisionSet) -> None:
    """Fetch the data set into the folder, unless its files are there already.

    They are unpacked in a folder of their own first, so a link in the way leads nowhere.

    Raises:
        DataFault: it cannot be fetched, or what is there is in the way.
    """
    at = LocalPlace(location)
    if all(at.has(file.path) for file in kind.files):
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".expunge-download-", dir=location) as folder:
            kind.download(Path(folder))
            for name in {file.path.partition("/")[0] for file in kind.files}:
                (Path(folder) / name).rename(Path(location) / name)
    except (OSError, RuntimeError) as fault:
        raise DataMissing(f"the data set could not be downloaded ({type(fault).__name__})") from fault


def _copy(at: Place, file: _File, root: Path) -> None:
    """A copy of the file below `root`, which is the genuine one. Raises DataFault."""
    copy, digest, size = root / file.path, hashlib.md5(usedforsecurity=False), 0
    copy.parent.mkdir(parents=True, exist_ok=True)
    name = copy.name
    try:
        with at.open(file.path) as source, copy.open("wb") as target:
            while (part := source.read(_COPY_BYTES)) and size <= _LARGEST_FILE:
                digest.update(part)
                size += target.write(part)
    except DataMissing:
        raise DataMissing(f"the data set's file {name} is not at the location") from None
    if digest.hexdigest() != file.md5:
        raise BadFormat(f"the file {name} is not the one that the data set was published with")


# --- CIFAR --------------------------------------------------------------------------------------------------


def cifar(kind: type[datasets.CIFAR10]) -> TorchvisionSet:
    """CIFAR-10 or CIFAR-100, by torchvision's class."""
    listed = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]

    def load(root: Path, is_train: bool) -> _Part:
        loaded = kind(root, train=is_train)
        return _Part(np.ascontiguousarray(loaded.data), np.array(loaded.targets, dtype=np.int64))

    return TorchvisionSet(
        files=tuple(_File(f"{kind.base_folder}/{name}", md5) for name, md5 in listed),
        load=load,
        class_names=lambda root: tuple(kind(root, train=False).classes),
        download=lambda root: download_and_extract_archive(
            kind.url, root, filename=kind.filename, md5=kind.tgz_md5, remove_finished=True
        ),
    )


# --- SVHN ---------------------------------------------------------------------------------------------------


def svhn(kind: type[datasets.SVHN]) -> TorchvisionSet:
    """SVHN, by torchvision's class: its parts `train` and `test`, whose label 10 is the digit 0."""
    listed = [kind.split_list[part] for part in ("train", "test")]

    def load(root: Path, is_train: bool) -> _Part:
        loaded = kind(root, split="train" if is_train else "test")
        return _Part(np.ascontiguousarray(loaded.data.transpose(0, 2, 3, 1)), loaded.labels)

    def fetch(root: Path) -> None:
        for url, name, md5 in listed:
            download_url(url, root, filename=name, md5=md5)

    return TorchvisionSet(
        files=tuple(_File(name, md5) for _, name, md5 in listed),
        load=load,
        class_names=lambda _: tuple(str(digit) for digit in range(10)),
        download=fetch,
    )


# --- Fashion-MNIST ------------------------------------------------------------------------------------------


def fashion_mnist(kind: type[datasets.FashionMNIST]) -> TorchvisionSet:
    """Fashion-MNIST, by torchvision's class; the packed files count, since only their MD5 is known."""
    raw = f"{kind.__name__}/raw"

    def load(root: Path, is_train: bool) -> _Part:
        for packed in (root / raw).glob("*.gz"):
            extract_archive(packed)
        loaded = kind(root, train=is_train)
        return _Part(loaded.data.numpy()[..., None], loaded.targets.numpy().astype(np.int64))

    def fetch(root: Path) -> None:
        (root / raw).mkdir(parents=True)
        for name, md5 in kind.resources:
            download_url(f"{kind.mirrors[0]}{name}", root / raw, filename=name, md5=md5)

    return TorchvisionSet(
        files=tuple(_File(f"{raw}/{name}", md5) for name, md5 in kind.resources),
        load=load,
        class_names=lambda _: tuple(kind.classes),
        download=fetch,
    )


SETS: dict[str, TorchvisionSet] = {
    "CIFAR10": cifar(datasets.CIFAR10),
    "CIFAR100": cifar(datasets.CIFAR100),
    "SVHN": svhn(datasets.SVHN),
    "FashionMNIST": fashion_mnist(datasets.FashionMNIST),
}
