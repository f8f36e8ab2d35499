"""Folders of image files: by their classes, and by a metadata file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from pydantic import ValidationError

from app.jobs.params import ImageFolder, reader_options
from models_store.rows import RowSet
from workers.data import image_folder
from workers.data.image_folder import ImageFolderReader, open_image_folder
from workers.data.reader import NO_LABEL, BadFormat, Chunk, DataMissing, RandomAccess, UnreadableImage
from workers.data.registry import open_reader
from workers.data.scan import Inspection, Scan
from workers.monitor import Silent

Png = Callable[[Any], bytes]
FILES = ("cats/a.png", "cats/deep/b.PNG", "dogs/c.png", "dogs/d.png", "owls/e.png")


@pytest.fixture
def folder(tmp_path: Path, pixels: Any, png: Png) -> Path:
    """Five images of three classes, and what else lies about."""
    folder = tmp_path / "photos"
    for path, image in zip(FILES, pixels, strict=False):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(png(image))
    (folder / "README.md").write_text("about")
    (folder / "dogs/.c.png").write_bytes(b"hidden")
    (folder / "dogs/Thumbs.db").write_bytes(b"no image")
    return folder


def _rows(reader: ImageFolderReader, wanted: RowSet | None = None) -> Chunk:
    (chunk,) = reader.chunks(wanted)
    return chunk


def _scan(reader: ImageFolderReader) -> Scan:
    inspection = Inspection(reader)
    for _ in inspection.rows(Silent()):
        pass
    return inspection.result()


def _listed(folder: Path, rows: list[dict[str, Any]], **options: Any) -> ImageFolderReader:
    """The reader of the folder with these rows for metadata."""
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return open_image_folder(str(folder), ImageFolder(metadata="rows.jsonl", **options))


def test_folders_are_classes(folder: Path, pixels: Any) -> None:
    """Every image file is a row, in the order of the paths, its path the sample ID."""
    reader = open_reader("image_folder", str(folder), {})
    (chunk,) = reader.chunks()
    assert reader.count == len(FILES)
    assert reader.class_names == ("cats", "dogs", "owls")
    assert list(chunk.sample_ids) == list(FILES)
    assert chunk.labels.tolist() == [0, 0, 1, 1, 2]
    assert (chunk.splits, chunk.subjects) == (None, None)
    assert all(np.array_equal(reader.decode(i), p) for i, p in zip(chunk.images, pixels, strict=False))


def test_the_inspection_finds_nothing_wrong(folder: Path) -> None:
    """A sound folder registers."""
    found = _scan(open_image_folder(str(folder), ImageFolder()))
    assert (found.faults, found.count, found.num_classes) == ((), 5, 3)
    assert found.image_shape == (6, 5, 3)


def test_options_convert_every_image(folder: Path, pixels: Any, png: Png) -> None:
    """Images of several sizes become one, and grey if that is asked for."""
    (folder / "cats/large.png").write_bytes(png(np.repeat(pixels[0], 300, axis=0)))
    found = _scan(open_image_folder(str(folder), ImageFolder(resize=4, channels=1)))
    assert (found.faults, found.image_shape) == ((), (4, 4, 1))
    faults = _scan(open_image_folder(str(folder), ImageFolder())).faults
    assert faults == ("row 2: the image is larger than 1024 pixels a side",)


def test_given_names_give_the_labels(folder: Path) -> None:
    """A class may be without images; a folder that is no class leaves its rows without labels."""
    options = ImageFolder(class_names=("owls", "newts", "cats"))
    reader = open_image_folder(str(folder), options)
    assert reader.class_names == ("owls", "newts", "cats")
    assert _rows(reader).labels.tolist() == [2, 2, NO_LABEL, NO_LABEL, 0]
    assert _scan(reader).faults[0] == "row 2: its label is missing, not an integer, or negative"


def test_an_image_in_no_class_is_a_fault(folder: Path, pixels: Any, png: Png) -> None:
    """It is not passed over."""
    (folder / "bare.png").write_bytes(png(pixels[0]))
    assert _scan(open_image_folder(str(folder), ImageFolder())).faults == (
        "row 0: its label is missing, not an integer, or negative",
    )


def test_wanted_rows_alone_are_given(folder: Path) -> None:
    """By their ordinals, those that exist."""
    chunk = _rows(open_image_folder(str(folder), ImageFolder()), RowSet.of([1, 4, 99]))
    assert chunk.ordinals.tolist() == [1, 4]
    assert list(chunk.sample_ids) == [FILES[1], FILES[4]]
    assert chunk.labels.tolist() == [0, 2]


def test_chunks_are_bounded_in_rows_and_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the bounds are, the same rows come."""
    reader = open_image_folder(str(folder), ImageFolder())
    whole = _rows(reader)
    for rows, size in ((2, 10**6), (100, 1), (3, 200)):
        monkeypatch.setattr(image_folder, "CHUNK_ROWS", rows)
        monkeypatch.setattr(image_folder, "CHUNK_BYTES", size)
        chunks = list(reader.chunks())
        assert len(chunks) > 1
        assert [ordinal for chunk in chunks for ordinal in chunk.ordinals] == list(range(5))
        assert [image for chunk in chunks for image in chunk.images] == list(whole.images)
        assert [name for chunk in chunks for name in chunk.sample_ids] == list(whole.sample_ids)


def test_any_row_can_be_fetched_alone(folder: Path) -> None:
    """From a folder of this machine: its image, and labels without images."""
    reader = open_image_folder(str(folder), ImageFolder())
    assert isinstance(reader, RandomAccess)
    assert [reader.image(ordinal) for ordinal in range(5)] == list(_rows(reader).images)
    assert reader.labels(RowSet.of([0, 3, 4])).tolist() == [0, 1, 2]


def test_hashes_are_of_the_files(folder: Path) -> None:
    """Converting changes the pixels and not the hash."""
    plain, small = (open_image_folder(str(folder), ImageFolder(resize=r)) for r in (None, 2))
    image = _rows(plain).images[0]
    assert plain.content_hash(image) == small.content_hash(image)


def test_a_bucket_is_read_like_a_folder(folder: Path, s3_url: str) -> None:
    """The same rows from an object store, from front to back."""
    for path in folder.rglob("*.*"):
        with fsspec.open(f"{s3_url}/{path.relative_to(folder)}", "wb") as file:
            file.write(path.read_bytes())
    here, there = (open_image_folder(at, ImageFolder()) for at in (str(folder), s3_url))
    assert not isinstance(there, RandomAccess)
    assert list(_rows(there).sample_ids) == list(FILES)
    assert list(_rows(there).images) == list(_rows(here).images)


# --- what is wrong --------------------------------------------------------------------------------------


def test_a_broken_image_is_a_fault_of_its_row(folder: Path, png: Png, pixels: Any) -> None:
    """A torn file, a format that is not read, an empty file, too many pixels."""
    (folder / "cats/a.png").write_bytes(png(pixels[0])[:-30])
    (folder / "dogs/c.gif").write_bytes(b"GIF89a" + bytes(20))
    (folder / "dogs/d.png").write_bytes(b"")
    (folder / "owls/e.png").write_bytes(png(np.repeat(pixels[4], 200, axis=0)))
    assert _scan(open_image_folder(str(folder), ImageFolder())).faults == (
        "row 0: the image is damaged",
        "row 2: there are no bytes of a BMP, JPEG, PNG or WEBP image",
        "row 4: there is no image: it is empty, or its file is missing or cannot be read",
        "row 5: the image is larger than 1024 pixels a side",
    )


@pytest.mark.parametrize("target", ["../../secret.png", "/etc/hostname", "nowhere"])
def test_a_link_out_of_the_folder_is_a_fault_of_its_row(folder: Path, target: str) -> None:
    """Where it leads cannot be told from the fault."""
    (folder.parent / "secret.png").write_bytes((folder / FILES[0]).read_bytes())
    (folder / "cats/link.png").symlink_to(target)
    assert _scan(open_image_folder(str(folder), ImageFolder())).faults == (
        "row 2: there is no image: it is empty, or its file is missing or cannot be read",
    )


def test_a_file_that_vanished_is_unreadable(folder: Path) -> None:
    """It does not end the reading."""
    reader = open_image_folder(str(folder), ImageFolder())
    (folder / FILES[2]).unlink()
    chunk = _rows(reader)
    assert len(chunk) == 5
    with pytest.raises(UnreadableImage):
        reader.shape(chunk.images[2])


def test_a_place_without_images_is_missing(tmp_path: Path) -> None:
    """A folder of other files, a file, nothing."""
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats/notes.txt").write_text("meow")
    for location in (tmp_path, tmp_path / "cats/notes.txt", tmp_path / "nowhere"):
        with pytest.raises(DataMissing):
            open_image_folder(str(location), ImageFolder())


def test_a_class_needs_a_name_that_can_be_shown(folder: Path) -> None:
    """Names of classes are kept with the data set."""
    (folder / "owls").rename(folder / "ow\nls")
    with pytest.raises(BadFormat, match="class's name"):
        open_image_folder(str(folder), ImageFolder())


# --- metadata --------------------------------------------------------------------------------------------


def test_metadata_say_what_the_rows_are(folder: Path, pixels: Any) -> None:
    """In its order, with its IDs, people, splits and labels; a file may be two rows."""
    rows = [
        {"file": "owls/e.png", "sample_id": "s2", "subject": "ann", "split": "test", "label": 1},
        {"file": "cats/a.png", "sample_id": 7, "subject": None, "split": None, "label": 0},
        {"file": "owls/e.png", "sample_id": "s1", "subject": "bob", "split": "train", "label": 1},
    ]
    reader = _listed(folder, rows)
    chunk = _rows(reader)
    assert list(chunk.sample_ids) == ["s2", "7", "s1"]
    assert chunk.subjects == ["ann", None, "bob"]
    assert chunk.splits == ["test", None, "train"]
    assert chunk.labels.tolist() == [1, 0, 1]
    assert reader.class_names == ()
    assert np.array_equal(reader.decode(chunk.images[0]), pixels[4])


def test_without_labels_the_folders_are_the_classes(folder: Path) -> None:
    """And without IDs the paths are the sample IDs."""
    reader = _listed(folder, [{"file": "owls/e.png"}, {"file": "cats/a.png"}])
    assert reader.class_names == ("cats", "owls")
    assert _rows(reader).labels.tolist() == [1, 0]
    assert list(_rows(reader).sample_ids) == ["owls/e.png", "cats/a.png"]


def test_labels_may_be_names(folder: Path) -> None:
    """The names that occur are the classes, in the order of their bytes; numbers among names are names."""
    labels = ["wild", "tame", "7", "wild", ""]
    rows = [{"file": file, "label": label} for file, label in zip(FILES, labels, strict=True)]
    reader = _listed(folder, rows)
    assert reader.class_names == ("7", "tame", "wild")
    assert _rows(reader).labels.tolist() == [2, 1, 0, 2, NO_LABEL]


def test_given_names_and_numbers_of_classes_may_mix(folder: Path) -> None:
    """With names of their own in the options, numbers count in their order; others are no classes."""
    labels = ["wild", 0, "3", "other", "-1"]
    rows = [{"file": file, "label": label} for file, label in zip(FILES, labels, strict=True)]
    reader = _listed(folder, rows, class_names=("tame", "wild"))
    assert _rows(reader).labels.tolist() == [1, 0, 3, NO_LABEL, NO_LABEL]
    assert "row 2: its label is 3, but the classes end at 1" in _scan(reader).faults


@pytest.mark.parametrize("file", ["../secret.png", "/etc/hostname", "cats/x.png", "", "cats", "link.png"])
def test_metadata_name_no_file_outside(folder: Path, file: str) -> None:
    """Missing or outside: a fault of the row, and the two cannot be told apart."""
    (folder.parent / "secret.png").write_bytes((folder / FILES[0]).read_bytes())
    (folder / "link.png").symlink_to("../secret.png")
    rows = [{"file": FILES[0], "sample_id": "a", "label": 0}, {"file": file, "sample_id": "b", "label": 1}]
    assert _scan(_listed(folder, rows)).faults == (
        "row 1: there is no image: it is empty, or its file is missing or cannot be read",
    )


@pytest.mark.parametrize("metadata", ["../rows.csv", "/rows.csv", "a/../../rows.csv", ""])
def test_metadata_lie_inside_the_location(metadata: str) -> None:
    """The options are refused when the data set is registered."""
    with pytest.raises(ValidationError):
        reader_options("image_folder", {"metadata": metadata})


def test_class_names_differ(folder: Path) -> None:
    """Two classes of one name could not be told apart."""
    with pytest.raises(ValidationError):
        reader_options("image_folder", {"class_names": ["cats", "dogs", "cats"]})
