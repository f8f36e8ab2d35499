"""Rows that are read batch by batch are the very rows that memory would hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.jobs.params import ImageFolder, Npz, Parquet, SklearnDigits
from models_store.rows import RowSet
from workers.data.batches import Batches, Rows
from workers.data.digits import DigitsReader
from workers.data.image_folder import open_image_folder
from workers.data.lazy import LazyRows, Loader
from workers.data.manifest import Manifest
from workers.data.npz import open_npz
from workers.data.parquet import ParquetReader
from workers.data.reader import DataChanged, DataFault, DataMissing, RandomAccess, Reader
from workers.monitor import Silent

SHAPE = (6, 5, 3)


@pytest.fixture
def folder(tmp_path: Path, pixels: Any, png: Callable[[Any], bytes]) -> Reader:
    """Twelve images in three folders of this machine: read one by one."""
    for number, image in enumerate(pixels):
        path = tmp_path / f"{number % 3}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(image))
    return open_image_folder(str(tmp_path), ImageFolder())


@pytest.fixture
def table(columns: dict[str, Any], write: Callable[..., Path]) -> Reader:
    """The same images in a parquet file: read from front to back."""
    return ParquetReader(str(write(columns)), Parquet())


@pytest.fixture
def arrays(tmp_path: Path, pixels: Any) -> Reader:
    """And as plain arrays: read at places of their own."""
    np.savez(tmp_path / "data.npz", x=pixels, y=np.arange(12) % 3)
    return open_npz(str(tmp_path / "data.npz"), Npz())


@pytest.fixture(params=["folder", "table", "arrays"])
def reader(request: pytest.FixtureRequest) -> Reader:
    """A data set of each kind."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def _manifest(reader: Reader) -> Manifest:
    hashes = [reader.content_hash(image) for chunk in reader.chunks() for image in chunk.images]
    return Manifest(np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 32))


def _loader(reader: Reader, memory_bytes: int = 0, **other: Any) -> Loader:
    given: dict[str, Any] = {"image_shape": SHAPE, "manifest": _manifest(reader), "threads": 3} | other
    return Loader(
        reader=reader,
        device=torch.device("cpu"),
        memory_bytes=memory_bytes,
        monitor=Silent(),
        **given,
    )


def _equal(first: Rows, second: Rows) -> bool:
    layout = first.images.stride() == second.images.stride()
    return layout and torch.equal(first.images, second.images) and torch.equal(first.labels, second.labels)


def test_memory_decides_how_rows_are_kept(reader: Reader) -> None:
    """Up to so many bytes of pixels they lie in memory, from the next byte on they do not."""
    wanted, size = RowSet.of([1, 4, 5]), 3 * 6 * 5 * 3
    assert isinstance(_loader(reader, size)(wanted), Rows)
    assert isinstance(_loader(reader, size - 1)(wanted), LazyRows)


@pytest.mark.parametrize("wanted", [RowSet.below(12), RowSet.of([0, 3, 4, 8, 11]), RowSet.of([])])
def test_rows_are_the_same_bits_either_way(reader: Reader, wanted: RowSet) -> None:
    """Images, their layout, labels and order, taken anyhow."""
    kept, lazy = _loader(reader, 10**9)(wanted), _loader(reader, -1)(wanted)
    assert isinstance(lazy, LazyRows)
    assert len(kept) == len(lazy) == len(wanted)
    assert torch.equal(kept.labels, lazy.labels)
    for places in (slice(None), slice(1, 3), torch.arange(len(wanted)).flip(0)[::2]):
        assert _equal(kept.take(places), lazy.take(places))
    for chosen in (None, torch.arange(0, len(wanted), 2)):
        pairs = zip(kept.in_order(2, chosen), lazy.in_order(2, chosen), strict=True)
        assert all(_equal(first, second) for first, second in pairs)


def test_batches_are_the_same_bits_either_way(reader: Reader) -> None:
    """Over several passes, augmented; and from any step on, as after a resumption."""
    wanted = RowSet.below(12)
    kept, *lazy = (
        Batches(_loader(reader, size)(wanted), batch_size=5, augmentation="flip_crop", seed=4)
        for size in (10**9, 0, 0)
    )
    assert all(_equal(kept.at(step), lazy[0].at(step)) for step in range(8))
    assert all(_equal(kept.at(step), lazy[1].at(step)) for step in (6, 7, 2, 2, 11))


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_the_number_of_threads_changes_nothing(reader: Reader, threads: int) -> None:
    """More than there are rows included."""
    kept = _loader(reader, 10**9)(RowSet.below(12)).take(slice(0, 7))
    assert _equal(kept, _loader(reader, threads=threads)(RowSet.below(12)).take(slice(0, 7)))


def test_what_was_expected_need_not_be_taken(reader: Reader) -> None:
    """A batch that is prepared and then not wanted is dropped."""
    rows = _loader(reader)(RowSet.below(12))
    rows.expect(torch.tensor([1, 2, 3]))
    rows.expect(torch.tensor([4]))
    other = rows.take(torch.tensor([7, 8]))
    assert _equal(other, _loader(reader, 10**9)(RowSet.below(12)).take(torch.tensor([7, 8])))


def test_rows_that_are_not_there_are_missing(reader: Reader) -> None:
    """However they are read."""
    for memory_bytes in (0, 10**9):
        with pytest.raises(DataMissing, match="1 of 3 wanted rows"):
            _loader(reader, memory_bytes)(RowSet.of([3, 4, 12]))


def test_images_of_another_shape_are_refused(reader: Reader) -> None:
    """The shape is the one that was registered."""
    rows = _loader(reader, image_shape=(5, 5, 3))(RowSet.below(12))
    with pytest.raises(DataFault, match=r"row 0 has shape \(6, 5, 3\)"):
        rows.take(slice(0, 2))


def test_changed_rows_are_noticed_when_they_are_read(reader: Reader) -> None:
    """Their hashes are not those of the registration; copies are compared at once, files as they are read."""
    hashes = _manifest(reader).hashes.copy()
    hashes[7] += 1
    loader = _loader(reader, manifest=Manifest(hashes))
    with pytest.raises(DataChanged, match=r"1 rows hold other images .*rows 7"):
        loader(RowSet.below(12)).take(slice(0, 12))
    assert len(loader(RowSet.below(7)).take(slice(0, 7))) == 7


def test_a_file_that_changes_during_training_is_noticed(folder: Reader, tmp_path: Path) -> None:
    """Each time that it is read its hash is compared."""
    rows = _loader(folder)(RowSet.below(12))
    assert isinstance(folder, RandomAccess)
    rows.take(slice(0, 12))
    (tmp_path / "1/4.png").write_bytes((tmp_path / "1/1.png").read_bytes())
    with pytest.raises(DataChanged):
        list(rows.in_order(5))


def test_without_hashes_nothing_is_compared(reader: Reader) -> None:
    """Data sets that were registered before there were manifests can be read."""
    assert len(_loader(reader, manifest=None)(RowSet.below(12)).take(slice(0, 12))) == 12


def test_images_are_decoded_when_they_are_taken() -> None:
    """Nothing is decoded for rows that nobody asked for."""
    seen: list[int] = []

    def pixels(place: int) -> Any:
        seen.append(place)
        return np.full((2, 2, 1), place, dtype=np.uint8)

    rows = LazyRows(pixels, np.arange(50), (2, 2, 1), device=torch.device("cpu"), threads=2)
    batch = rows.take(torch.tensor([40, 3]))
    assert batch.images[:, 0, 0, 0].tolist() == [40, 3]
    assert sorted(seen) == [3, 40]


def test_the_digits_are_the_same_bits_either_way() -> None:
    """Grey images keep their layout, too."""
    reader = DigitsReader("", SklearnDigits())
    kept, lazy = (
        _loader(reader, size, image_shape=(8, 8, 1))(RowSet.of(range(0, 300, 2))) for size in (10**9, 0)
    )
    assert _equal(kept.take(slice(20, 90)), lazy.take(slice(20, 90)))
