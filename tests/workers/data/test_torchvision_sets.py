"""Torchvision's data sets: small ones in the genuine formats, whose MD5 stands in place of the real ones'."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from torchvision import datasets

from app.jobs.params import TorchvisionDataset
from models_store.rows import RowSet
from workers.data.place import place
from workers.data.reader import NO_LABEL, BadFormat, Chunk, DataMissing
from workers.data.registry import fetch, open_reader
from workers.data.torchvision_sets import (
    SETS,
    TorchvisionReader,
    TorchvisionSet,
    cifar,
    download,
    fashion_mnist,
    open_torchvision,
    svhn,
)

TRAIN, TEST = 7, 3


@pytest.fixture
def photos() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Ten random images, uint8 [10, 32, 32, 3]: seven to train on, three to test on."""
    return np.random.default_rng(0).integers(0, 256, (TRAIN + TEST, 32, 32, 3), dtype=np.uint8)


def _put(path: Path, content: bytes) -> str:
    """Write the file, and give its MD5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.md5(content).hexdigest()


def _make_cifar(root: Path, photos: Any, parent: type[Any], labels: str, names: str) -> TorchvisionSet:
    """Batches as CIFAR's authors pickled them: rows of 3,072 bytes, channel by channel."""
    folder, rows = root / parent.base_folder, photos.transpose(0, 3, 1, 2).reshape(len(photos), -1)

    def batch(name: str, part: slice) -> list[str]:
        entry = {"data": rows[part], labels: [row % 4 for row in range(10)][part]}
        return [name, _put(folder / name, pickle.dumps(entry, protocol=2))]

    class Small(parent):  # type: ignore[misc]
        train_list = [batch("data_batch_1", slice(0, 4)), batch("data_batch_2", slice(4, 7))]  # noqa: RUF012
        test_list = [batch("test_batch", slice(7, 10))]  # noqa: RUF012
        meta = {  # noqa: RUF012
            "filename": "meta",
            "key": names,
            "md5": _put(folder / "meta", pickle.dumps({names: ["cat", "dog", "fox", "owl"]}, protocol=2)),
        }

    return cifar(Small)


def _make_svhn(root: Path, photos: Any) -> TorchvisionSet:
    """MATLAB files of [32, 32, 3, n], in which the digit 0 has label 10."""

    def part(name: str, rows: slice) -> list[str]:
        buffer, labels = io.BytesIO(), np.array([10, 1, 2, 3, 4, 5, 6, 7, 8, 10], dtype=np.uint8)[rows]
        savemat(buffer, {"X": photos[rows].transpose(1, 2, 3, 0), "y": labels[:, None]})
        return ["", name, _put(root / name, buffer.getvalue())]

    class Small(datasets.SVHN):  # type: ignore[misc]
        split_list = {  # noqa: RUF012
            "train": part("train_32x32.mat", slice(0, 7)),
            "test": part("test_32x32.mat", slice(7, 10)),
        }

    return svhn(Small)


def _make_fashion(root: Path, photos: Any) -> TorchvisionSet:
    """Packed IDX files: a magic number, the sides, the bytes."""

    def packed(name: str, values: Any) -> tuple[str, str]:
        sides = b"".join(side.to_bytes(4, "big") for side in values.shape)
        content = bytes([0, 0, 8, values.ndim]) + sides + values.tobytes()
        return f"{name}.gz", _put(root / "FashionMNIST/raw" / f"{name}.gz", gzip.compress(content))

    grey, labels = photos[..., 0], np.arange(10, dtype=np.uint8)

    class FashionMNIST(datasets.FashionMNIST):  # type: ignore[misc]
        resources = [  # noqa: RUF012
            packed("train-images-idx3-ubyte", grey[:7]),
            packed("train-labels-idx1-ubyte", labels[:7]),
            packed("t10k-images-idx3-ubyte", grey[7:]),
            packed("t10k-labels-idx1-ubyte", labels[7:]),
        ]

    return fashion_mnist(FashionMNIST)


MAKERS: dict[str, Callable[[Path, Any], TorchvisionSet]] = {
    "CIFAR10": lambda root, photos: _make_cifar(root, photos, datasets.CIFAR10, "labels", "label_names"),
    "CIFAR100": lambda root, photos: _make_cifar(
        root, photos, datasets.CIFAR100, "fine_labels", "fine_label_names"
    ),
    "SVHN": _make_svhn,
    "FashionMNIST": _make_fashion,
}


def _only_chunk(reader: TorchvisionReader, wanted: RowSet | None = None) -> Chunk:
    (chunk,) = reader.chunks(wanted)
    return chunk


@pytest.mark.parametrize("name", MAKERS)
def test_all_rows_are_read(tmp_path: Path, photos: Any, name: str) -> None:
    """Training rows, then test rows: the very pixels, in torchvision's order, with IDs by part and place."""
    reader = TorchvisionReader(place(str(tmp_path)), MAKERS[name](tmp_path, photos))
    chunk = _only_chunk(reader)
    assert reader.count == len(chunk) == TRAIN + TEST
    assert list(chunk.sample_ids) == [*(f"train-{n}" for n in range(7)), *(f"test-{n}" for n in range(3))]
    assert chunk.splits == [None] * TRAIN + ["test"] * TEST
    pixels = np.stack([reader.decode(image) for image in chunk.images])
    expected = photos[..., :1] if name == "FashionMNIST" else photos
    assert np.array_equal(pixels, expected)
    assert reader.shape(chunk.images[0]) == expected.shape[1:]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("CIFAR10", [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]),
        ("CIFAR100", [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]),
        ("SVHN", [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]),
        ("FashionMNIST", list(range(10))),
    ],
)
def test_labels_and_classes(tmp_path: Path, photos: Any, name: str, labels: list[int]) -> None:
    """Labels are what the names are in the order of; SVHN's 10 is the digit 0."""
    reader = TorchvisionReader(place(str(tmp_path)), MAKERS[name](tmp_path, photos))
    assert _only_chunk(reader).labels.tolist() == labels
    names = {"SVHN": "0", "FashionMNIST": "T-shirt/top"}.get(name, "cat")
    assert reader.class_names[0] == names
    assert NO_LABEL < max(labels) < len(reader.class_names)


def test_wanted_rows_alone_are_given(tmp_path: Path, photos: Any) -> None:
    """Rows of both parts by their ordinals."""
    reader = TorchvisionReader(place(str(tmp_path)), MAKERS["SVHN"](tmp_path, photos))
    chunk = _only_chunk(reader, RowSet.of([2, 8]))
    assert chunk.ordinals.tolist() == [2, 8]
    assert list(chunk.sample_ids) == ["train-2", "test-1"]
    assert np.array_equal(reader.decode(chunk.images[1]), photos[8])


def test_hashes_tell_images_apart(tmp_path: Path, photos: Any) -> None:
    """Each image has a hash of its own."""
    reader = TorchvisionReader(place(str(tmp_path)), MAKERS["CIFAR10"](tmp_path, photos))
    assert len({reader.content_hash(image) for image in _only_chunk(reader).images}) == TRAIN + TEST


class _Bomb:
    """Unpickling this would make a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return (Path.mkdir, (self._path,))


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "meta"])
def test_a_pickle_that_is_not_the_genuine_one_is_never_opened(tmp_path: Path, photos: Any, name: str) -> None:
    """Code in a batch, or in the list of the classes, does not run."""
    root, marker = tmp_path / "root", tmp_path / "it ran"
    kind = MAKERS["CIFAR10"](root, photos)
    (root / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(_Bomb(marker)))
    with pytest.raises(BadFormat, match=f"file {name} is not the one"):
        TorchvisionReader(place(str(root)), kind)
    assert not marker.exists()
    pickle.loads(pickle.dumps(_Bomb(marker)))
    assert marker.exists()  # it would have run


@pytest.mark.parametrize("name", MAKERS)
def test_a_missing_file_is_named(tmp_path: Path, photos: Any, name: str) -> None:
    """The names are torchvision's, so they may be told."""
    kind = MAKERS[name](tmp_path, photos)
    path = tmp_path / kind.files[0].path
    path.unlink()
    with pytest.raises(DataMissing, match=f"file {path.name} is not at the location"):
        TorchvisionReader(place(str(tmp_path)), kind)


def test_a_link_out_of_the_location_is_missing(tmp_path: Path, photos: Any) -> None:
    """Even to a genuine file."""
    kind = MAKERS["SVHN"](tmp_path / "root", photos)
    path = tmp_path / "root" / kind.files[0].path
    path.rename(tmp_path / "outside.mat")
    path.symlink_to(tmp_path / "outside.mat")
    with pytest.raises(DataMissing):
        TorchvisionReader(place(str(tmp_path / "root")), kind)


@pytest.mark.parametrize("name", SETS)
def test_the_registered_sets_are_the_published_ones(tmp_path: Path, photos: Any, name: str) -> None:
    """Files of the right names and of other content are refused by the real data sets' sums."""
    for file in SETS[name].files:
        _put(tmp_path / file.path, b"other content")
    with pytest.raises(BadFormat, match="not the one that the data set was published with"):
        open_torchvision(str(tmp_path), _options(name))


def _options(name: Any) -> TorchvisionDataset:
    return TorchvisionDataset(name=name)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL under which a server of this machine offers it."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def offered(tmp_path: Path, served: tuple[Path, str], photos: Any) -> type[Any]:
    """A small CIFAR-10 that can be downloaded as an archive."""
    folder, url = served
    kind = _make_cifar(tmp_path / "made", photos, datasets.CIFAR10, "labels", "label_names")
    with tarfile.open(folder / "small.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "made/cifar-10-batches-py", "cifar-10-batches-py")
    by_name = {Path(file.path).name: file.md5 for file in kind.files}

    class Offered(datasets.CIFAR10):  # type: ignore[misc]
        train_list = [[name, by_name[name]] for name in ("data_batch_1", "data_batch_2")]  # noqa: RUF012
        test_list = [["test_batch", by_name["test_batch"]]]  # noqa: RUF012
        meta = {"filename": "meta", "key": "label_names", "md5": by_name["meta"]}  # noqa: RUF012
        filename = "small.tar.gz"

    Offered.url = f"{url}/small.tar.gz"
    Offered.tgz_md5 = hashlib.md5((folder / "small.tar.gz").read_bytes()).hexdigest()
    return Offered


def test_a_downloaded_set_can_be_read(tmp_path: Path, offered: type[Any], photos: Any) -> None:
    """What was fetched is what its reader expects; nothing else is left, and it is not fetched again."""
    root, kind = tmp_path / "root", cifar(offered)
    root.mkdir()
    download(str(root), kind)
    assert [path.name for path in root.iterdir()] == ["cifar-10-batches-py"]
    assert TorchvisionReader(place(str(root)), kind).count == TRAIN + TEST
    offered.url = "http://127.0.0.1:1/nothing"
    download(str(root), cifar(offered))


@pytest.mark.parametrize("spoil", ["url", "tgz_md5"])
def test_a_download_that_fails_leaves_nothing(tmp_path: Path, offered: type[Any], spoil: str) -> None:
    """Neither an unreachable server nor another file than the published one leaves anything behind."""
    root = tmp_path / "root"
    root.mkdir()
    setattr(offered, spoil, {"url": "http://127.0.0.1:1/nothing", "tgz_md5": "0" * 32}[spoil])
    with pytest.raises(DataMissing, match="could not be downloaded"):
        download(str(root), cifar(offered))
    assert not list(root.iterdir())


def test_a_download_follows_no_link(tmp_path: Path, offered: type[Any]) -> None:
    """A link in the place of the data set's folder is replaced, and nothing is written to where it leads."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "cifar-10-batches-py").symlink_to(outside)
    with pytest.raises(DataMissing):
        download(str(root), cifar(offered))
    assert not list(outside.iterdir())


def test_only_what_is_asked_for_is_downloaded(
    tmp_path: Path, offered: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registering fetches a data set whose options say so, and reading never does."""
    monkeypatch.setitem(SETS, "CIFAR10", cifar(offered))
    root = tmp_path / "root"
    root.mkdir()
    for name in ("torchvision", "image_folder", "sklearn_digits"):
        fetch(name, str(root), {})
    assert not list(root.iterdir())
    with pytest.raises(DataMissing):
        open_reader("torchvision", str(root), {"download": True})
    fetch("torchvision", str(root), {"download": True})
    assert open_reader("torchvision", str(root), {"download": True}).count == TRAIN + TEST
