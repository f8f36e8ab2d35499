from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from app.jobs.params import Parquet, ParquetFile
from models_store.rows import RowSet
from tests.fixtures.readers import rows
from workers.data.loading import load
from workers.data.parquet import ParquetReader
from workers.data.reader import BadFormat, DataMissing, UnreadableImage

Columns = dict[str, list[Any]]
Write = Callable[..., Path]
CIFAR = (Path(__file__).parents[4] / "shared" / "data" / "cifar10").resolve()  # as registration resolves it


def test_rows_come_as_they_stand(columns: Columns, write: Write) -> None:
    """ID, label, subject, split and the hash of the stored bytes of every row, over several row groups."""
    options = Parquet(subject_column="person", split_column="part")
    for number, row in enumerate(rows(ParquetReader(str(write(columns)), options))):
        assert row.ordinal == number
        assert row.sample_id == columns["sample_id"][number]
        assert row.label == columns["label"][number]
        assert row.subject == columns["person"][number]
        assert row.split == columns["part"][number]
        assert row.content_hash == hashlib.sha256(columns["image"][number]["bytes"]).digest()
    assert number == 11


@pytest.mark.parametrize("wanted", [range(12), [0, 4, 5, 11], [7]])
def test_chosen_rows_are_decoded(
    columns: Columns, write: Write, pixels: Any, wanted: list[int] | range
) -> None:
    """Loading gives the pixels that were encoded, and the labels, in the order of the rows."""
    images, labels = load(ParquetReader(str(write(columns)), Parquet()), RowSet.of(wanted), (6, 5, 3))
    assert np.array_equal(images, pixels[list(wanted)])
    assert labels.tolist() == [columns["label"][number] for number in wanted]


def test_plain_bytes_and_renamed_columns(columns: Columns, write: Write, pixels: Any) -> None:
    """An image column of plain bytes, integer IDs and other column names are read as well."""
    renamed = {
        "key": list(range(12)),
        "picture": [image["bytes"] for image in columns["image"]],
        "class": columns["label"],
    }
    options = Parquet(id_column="key", image_column="picture", label_column="class")
    reader = ParquetReader(str(write(renamed)), options)
    assert [row.sample_id for row in rows(reader)] == [str(number) for number in range(12)]
    assert np.array_equal(load(reader, RowSet.of([3]), (6, 5, 3))[0], pixels[3:4])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string()])
def test_text_may_be_stored_in_several_ways(columns: Columns, write: Write, kind: pa.DataType) -> None:
    """Plain, large and dictionary-encoded text is read alike, and so are its gaps."""
    people = pa.array([*columns["person"][:11], None], type=pa.string()).cast(kind)
    ids = pa.array(columns["sample_id"]).cast(kind)
    path = write({**columns, "sample_id": ids, "person": people})
    read = list(rows(ParquetReader(str(path), Parquet(subject_column="person"))))
    assert [row.sample_id for row in read] == columns["sample_id"]
    assert [row.subject for row in read] == [*columns["person"][:11], None]


def test_missing_values_are_noticed(columns: Columns, write: Write) -> None:
    """A row without ID, label or image comes with none, beside others that have them."""
    columns["sample_id"][1] = columns["label"][2] = None
    columns["image"][3] = None
    columns["image"][4] = {"bytes": None, "path": "elsewhere.png"}
    reader = ParquetReader(str(write(columns)), Parquet())
    chunks = list(reader.chunks())
    assert [text for chunk in chunks for text in chunk.sample_ids][:3] == ["photo-0", "", "photo-2"]
    assert [label for chunk in chunks for label in chunk.labels.tolist()][:4] == [0, 1, -1, 0]
    assert [bool(image) for chunk in chunks for image in chunk.images] == [True] * 3 + [False] * 2 + [
        True
    ] * 7


def test_labels_beyond_every_integer_are_none(columns: Columns, write: Write) -> None:
    """An unsigned number that no signed one holds is no label."""
    labels = pa.array([2**64 - 1, *[1] * 11], type=pa.uint64())
    read = [row.label for row in rows(ParquetReader(str(write({**columns, "label": labels})), Parquet()))]
    assert read == [-1] + [1] * 11


def test_files_are_joined_in_the_listed_order(columns: Columns, write: Write, tmp_path: Path) -> None:
    """Rows are numbered through the files, each with its own split and its first `limit` rows."""
    write(columns, "train.parquet")
    write({**columns, "sample_id": [f"other-{i}" for i in range(12)]}, "test.parquet")
    options = Parquet(
        files=(
            ParquetFile(path="test.parquet", split="test", limit=7),
            ParquetFile(path="train.parquet", limit=3),
        ),
    )
    reader = ParquetReader(str(tmp_path), options)
    read = list(rows(reader))
    assert reader.count == 10
    assert [row.ordinal for row in read] == list(range(10))
    assert [row.sample_id for row in read] == [f"other-{i}" for i in range(7)] + [
        f"photo-{i}" for i in range(3)
    ]
    assert [row.split for row in read] == ["test"] * 7 + [None] * 3
    assert load(reader, RowSet.of([6, 7]), (6, 5, 3))[1].tolist() == [
        columns["label"][6],
        columns["label"][0],
    ]


def test_a_folder_is_read_in_the_order_of_its_names(columns: Columns, write: Write, tmp_path: Path) -> None:
    """Without a list every .parquet file of the folder belongs to the data set."""
    write({**columns, "sample_id": ["b"] * 12}, "b.parquet")
    write({**columns, "sample_id": ["a"] * 12}, "a.parquet")
    (tmp_path / "README.md").write_text("not data")
    read = [row.sample_id for row in rows(ParquetReader(str(tmp_path), Parquet()))]
    assert read == ["a"] * 12 + ["b"] * 12


def test_no_link_leads_out_of_the_folder(columns: Columns, write: Write, tmp_path: Path) -> None:
    """A file that is a symbolic link to elsewhere does not count as being in the folder."""
    outside = write(columns, "outside.parquet")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "inside.parquet").symlink_to(outside)
    with pytest.raises(DataMissing, match="file 1"):
        ParquetReader(str(folder), Parquet(files=(ParquetFile(path="inside.parquet"),)))


def test_class_names_of_hugging_face_are_found(columns: Columns, write: Write) -> None:
    """The names in the schema's metadata are used unless the options give others."""
    features = {"label": {"names": ["cat", "dog", "eel"], "_type": "ClassLabel"}}
    path = str(write(columns, huggingface=json.dumps({"info": {"features": features}})))
    assert ParquetReader(path, Parquet()).class_names == ("cat", "dog", "eel")
    assert ParquetReader(path, Parquet(class_names=("x", "y", "z"))).class_names == ("x", "y", "z")


@pytest.mark.parametrize("metadata", ["not json", "[]", '{"info": null}', '{"info": {"features": {}}}'])
def test_other_metadata_names_no_classes(columns: Columns, write: Write, metadata: str) -> None:
    """Metadata of another form is passed over."""
    assert ParquetReader(str(write(columns, huggingface=metadata)), Parquet()).class_names == ()


def test_grey_stays_one_channel_and_colours_become_rgb(columns: Columns, write: Write) -> None:
    """A grey image has one channel; a palette image has three."""
    reader = ParquetReader(str(write(columns)), Parquet())
    for mode, channels in [("L", 1), ("P", 3), ("RGBA", 3)]:
        buffer = io.BytesIO()
        Image.new(mode, (4, 3)).save(buffer, format="PNG")
        assert reader.shape(buffer.getvalue()) == (3, 4, channels)
        assert reader.decode(buffer.getvalue()).shape == (3, 4, channels)


@pytest.mark.parametrize("damage", ["nothing", "text", "half", "huge"])
def test_what_is_no_image_is_unreadable(columns: Columns, write: Write, damage: str) -> None:
    """Missing, foreign, cut off and oversized images raise; the message has the row's number, not its ID."""
    content = columns["image"][2]["bytes"]
    buffer = io.BytesIO()
    Image.new("L", (1025, 1)).save(buffer, format="PNG")
    spoiled = {
        "nothing": b"",
        "text": b"<svg/>",
        "half": content[: len(content) // 2],
        "huge": buffer.getvalue(),
    }
    columns["image"][2]["bytes"] = spoiled[damage]
    reader = ParquetReader(str(write(columns)), Parquet())
    with pytest.raises(UnreadableImage, match="row 2") as caught:
        load(reader, RowSet.of([1, 2]), (6, 5, 3))
    assert "photo" not in str(caught.value)


def test_missing_and_foreign_files_are_named_by_number(
    columns: Columns, write: Write, tmp_path: Path
) -> None:
    """Every file without the columns, or of another format, is reported at once."""
    write({"sample_id": ["a"], "label": [0]}, "a.parquet")
    write(columns, "b.parquet")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(BadFormat, match=r"file 1: .*image; file 3: it is not a parquet file"):
        ParquetReader(str(tmp_path), Parquet())


def test_an_image_column_holds_bytes(columns: Columns, write: Write) -> None:
    """A column of text is not an image column."""
    with pytest.raises(BadFormat, match="neither binary"):
        ParquetReader(str(write({**columns, "image": ["a.png"] * 12})), Parquet())


def test_damaged_pages_are_a_bad_format(columns: Columns, write: Write) -> None:
    """A file that is damaged behind a sound footer is reported as such."""
    path = write(columns)
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(bytes(content))
    with pytest.raises(BadFormat, match="damaged"):
        list(rows(ParquetReader(str(path), Parquet())))


@pytest.mark.parametrize("files", [(), (ParquetFile(path="x.parquet"),)])
def test_an_absent_location_is_missing(tmp_path: Path, files: tuple[ParquetFile, ...]) -> None:
    """There is a clear word for a location that does not exist."""
    with pytest.raises(DataMissing):
        ParquetReader(str(tmp_path / "nowhere"), Parquet(files=files))


def test_an_empty_folder_is_missing(tmp_path: Path) -> None:
    """A folder without parquet files holds no data set."""
    with pytest.raises(DataMissing, match=r"no \.parquet"):
        ParquetReader(str(tmp_path), Parquet())


def test_rows_beyond_the_end_are_missing(columns: Columns, write: Write) -> None:
    """Asking for rows that the file does not have is an error, not a shorter answer."""
    with pytest.raises(DataMissing, match="1 of 2"):
        load(ParquetReader(str(write(columns)), Parquet()), RowSet.of([3, 12]), (6, 5, 3))


@pytest.mark.skipif(not CIFAR.is_dir(), reason="the CIFAR-10 files are not on this machine")
def test_real_photographs_are_read() -> None:
    """Of the CIFAR-10 files, joined as one data set, the chosen rows are decoded."""
    options = Parquet(
        files=(
            ParquetFile(path="train.parquet", limit=10_000),
            ParquetFile(path="test.parquet", split="test"),
        ),
    )
    reader = ParquetReader(str(CIFAR), options)
    images, labels = load(reader, RowSet.of(range(9_900, 10_100)), (32, 32, 3))
    assert reader.count == 14_000
    assert images.shape == (200, 32, 32, 3)
    assert set(labels.tolist()) == set(range(10))
    assert 100 < images.mean() < 140
