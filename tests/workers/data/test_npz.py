from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.jobs.params import Npz
from models_store.rows import RowSet
from tests.fixtures.readers import rows
from workers.data.loading import load
from workers.data.npz import NpzReader, open_npz
from workers.data.reader import CHUNK_ROWS, BadFormat, DataMissing, RandomAccess
from workers.data.scan import scan
from workers.monitor import Silent

Save = Callable[..., Path]


@pytest.fixture
def arrays(pixels: Any) -> dict[str, Any]:
    """The arrays of a sound file of 12 rows."""
    return {
        "x": pixels,
        "y": np.arange(12) % 3,
        "ids": np.array([f"image-{number}" for number in range(12)]),
        "subjects": np.array(["ann", "bo", ""] * 4),
        "split": np.array(["train", "", "test"] * 4),
    }


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write arrays as an .npz file and say where it is."""

    def save(arrays: dict[str, Any], *, compressed: bool = False) -> Path:
        (np.savez_compressed if compressed else np.savez)(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return save


def _open(path: Path) -> NpzReader:
    return open_npz(str(path), Npz())


@pytest.mark.parametrize("compressed", [False, True])
def test_rows_and_images_come_as_they_stand(arrays: Any, save: Save, compressed: bool) -> None:
    """Everything that was saved is read back; empty subjects and splits are none."""
    reader = _open(save(arrays, compressed=compressed))
    read = list(rows(reader))
    assert [row.sample_id for row in read] == arrays["ids"].tolist()
    assert [row.subject for row in read] == ["ann", "bo", None] * 4
    assert [row.split for row in read] == ["train", None, "test"] * 4
    images, labels = load(reader, RowSet.of([1, 6, 11]), (6, 5, 3))
    assert np.array_equal(images, arrays["x"][[1, 6, 11]])
    assert labels.tolist() == arrays["y"][[1, 6, 11]].tolist()


def test_grey_images_and_no_ids(arrays: Any, save: Save) -> None:
    """[N, H, W] images have one channel; without IDs a row's position is its ID."""
    reader = _open(save({"x": arrays["x"][..., 0], "y": arrays["y"]}))
    assert load(reader, RowSet.of([0]), (6, 5, 1))[0].shape == (1, 6, 5, 1)
    assert [row.sample_id for row in rows(reader)] == [str(number) for number in range(12)]


def test_the_hash_tells_shapes_apart(save: Save) -> None:
    """The same pixels in another shape are another image."""
    tall = next(rows(_open(save({"x": np.zeros((1, 4, 2), np.uint8), "y": [0]}))))
    wide = next(rows(_open(save({"x": np.zeros((1, 2, 4), np.uint8), "y": [0]}))))
    assert tall.content_hash != wide.content_hash
    assert len(tall.content_hash) == 32


def test_objects_are_never_unpickled(arrays: Any, save: Save) -> None:
    """An array of Python objects is refused, as images and as a column."""
    with pytest.raises(BadFormat, match="plain values"):
        _open(save({**arrays, "x": np.array([object()] * 12)}))
    with pytest.raises(BadFormat, match="plain values"):
        list(rows(_open(save({**arrays, "ids": np.array(["a"] * 12, dtype=object)}))))


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((12, 6, 5, 3), np.float32),
        np.zeros((12, 30), np.uint8),
        np.zeros((12, 6, 5, 2), np.uint8),
        np.zeros((1, 1025, 2), np.uint8),
        np.zeros((12, 0, 5), np.uint8),
        np.asfortranarray(np.zeros((12, 6, 5, 3), np.uint8)),
    ],
)
def test_other_arrays_are_no_images(arrays: Any, save: Save, x: Any) -> None:
    """Other types, dimensions, channels, sizes and memory orders are refused when the file is opened."""
    with pytest.raises(BadFormat):
        _open(save({**arrays, "x": x}))


@pytest.mark.parametrize("name", ["y", "ids", "subjects", "split"])
def test_columns_must_have_a_value_a_row(arrays: Any, save: Save, name: str) -> None:
    """A column that is too short is refused before any row is read."""
    with pytest.raises(BadFormat, match=f"'{name}' has shape"):
        next(rows(_open(save({**arrays, name: arrays[name][:-1]}))))


def test_a_claimed_size_is_not_allocated(tmp_path: Path) -> None:
    """A header that claims far more labels than the file holds is refused without allocating them."""
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, shape, kind in [("x", (2**40, 8, 8), "|u1"), ("y", (2**40,), "<i8")]:
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"shape": shape, "fortran_order": False, "descr": kind}
            )
            archive.writestr(f"{name}.npy", header.getvalue() + b"\0" * 64 * CHUNK_ROWS * (name == "x"))
    with pytest.raises(BadFormat, match="'y' ends early"):
        next(rows(_open(path)))


def test_torn_images_are_noticed(arrays: Any, save: Save) -> None:
    """Pixels that do not match the archive's checksum are refused on the way."""
    path = save({"x": np.tile(arrays["x"], (200, 1, 1, 1)), "y": np.arange(2400) % 3})
    content = bytearray(path.read_bytes())
    content[100_000:100_010] = bytes(255 - byte for byte in content[100_000:100_010])
    path.write_bytes(bytes(content))
    with pytest.raises(BadFormat, match="'x' ends early or is damaged"):
        scan(_open(path), Silent())


def test_only_wanted_rows_come(arrays: Any, save: Save) -> None:
    """Chunks without a wanted row are passed over; the others hold the wanted rows alone."""
    count = 2 * CHUNK_ROWS + 7
    x = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 2, 2)
    reader = _open(save({"x": x, "y": np.arange(count)}, compressed=True))
    wanted = [CHUNK_ROWS - 1, 2 * CHUNK_ROWS, count - 1]
    images, labels = load(reader, RowSet.of(wanted), (2, 2, 1))
    assert labels.tolist() == wanted
    assert np.array_equal(images[..., 0], x[wanted])
    assert [row.ordinal for row in rows(reader)] == list(range(count))


def test_one_image_is_fetched_where_the_file_is_not_compressed(arrays: Any, save: Save) -> None:
    """Only an uncompressed array has a place for each image."""
    stored = _open(save(arrays))
    assert isinstance(stored, RandomAccess)
    assert [stored.image(ordinal) for ordinal in (11, 0)] == [
        arrays["x"][11].tobytes(),
        arrays["x"][0].tobytes(),
    ]
    assert not isinstance(_open(save(arrays, compressed=True)), RandomAccess)


def test_bytes_are_text_in_utf8(arrays: Any, save: Save) -> None:
    """IDs, subjects and splits may be arrays of bytes; what is no UTF-8 is not printable."""
    ids = np.array(["zoë".encode(), *(b"id-%d" % number for number in range(10)), b"\xff"])
    people = np.array([b"ann", b""] * 6)
    read = list(
        rows(_open(save({**arrays, "ids": ids, "subjects": people, "split": np.array([b"test"] * 12)})))
    )
    assert [row.sample_id for row in read[:2]] == ["zoë", "id-0"]
    assert not read[11].sample_id.isprintable()
    assert [row.subject for row in read] == ["ann", None] * 6
    assert {row.split for row in read} == {"test"}


@pytest.mark.parametrize(
    ("y", "read"),
    [
        (np.array([0, 1, 2**64 - 1] * 4, np.uint64), [0, 1, -1] * 4),
        (np.array([0, 1, -7] * 4, np.int8), [0, 1, -7] * 4),
        (np.array([0.0, 1.0, 2.0] * 4), [-1] * 12),
        (np.array([True, False] * 6), [-1] * 12),
    ],
)
def test_labels_are_whole_numbers(arrays: Any, save: Save, y: Any, read: list[int]) -> None:
    """Labels of any width of integer are read; whatever else there is has no label."""
    assert [row.label for row in rows(_open(save({**arrays, "y": y})))] == read


@pytest.mark.parametrize("kind", ["<U0", "<U20000"])
def test_values_have_a_sensible_size(tmp_path: Path, kind: str) -> None:
    """An array of empty or of enormous values is refused when the file is opened."""
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        for name, shape, dtype in [("x", (2, 8, 8), "|u1"), ("y", (2,), "<i8"), ("ids", (2,), kind)]:
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"shape": shape, "fortran_order": False, "descr": dtype}
            )
            archive.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(BadFormat, match="'ids' has values of"):
        _open(tmp_path / "data.npz")


@pytest.mark.parametrize("ids", [np.zeros(12), np.zeros(12, bool), np.zeros(12, "datetime64[s]")])
def test_other_values_are_no_ids(arrays: Any, save: Save, ids: Any) -> None:
    """Fractions, truth values and times name nothing."""
    assert [row.sample_id for row in rows(_open(save({**arrays, "ids": ids})))] == [""] * 12


def test_numbers_that_are_no_characters_are_refused(arrays: Any, save: Save) -> None:
    """A damaged array of text is a bad format, not an internal error."""
    ids = np.full(12, 0x110000, dtype="<u4").view("<U1")
    with pytest.raises(BadFormat, match="no characters"):
        list(rows(_open(save({**arrays, "ids": ids}))))


def test_no_labels_no_data_set(arrays: Any, save: Save) -> None:
    """A file without the array 'y' is refused."""
    with pytest.raises(BadFormat, match="no array 'y'"):
        next(rows(_open(save({"x": arrays["x"]}))))


def test_other_files_are_a_bad_format(tmp_path: Path) -> None:
    """Text is not an archive, and an archive without 'x' is not a data set."""
    (tmp_path / "a.npz").write_text("x,y")
    with pytest.raises(BadFormat, match="not an"):
        _open(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", z=np.zeros(1))
    with pytest.raises(BadFormat, match="no readable array 'x'"):
        _open(tmp_path / "b.npz")


def test_an_absent_file_is_missing(tmp_path: Path) -> None:
    """There is a clear word for a location that does not exist."""
    with pytest.raises(DataMissing):
        _open(tmp_path / "nowhere.npz")
