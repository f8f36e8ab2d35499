from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.jobs.params import Parquet, SklearnDigits
from workers.data.digits import DigitsReader
from workers.data.parquet import ParquetReader
from workers.data.reader import BadFormat
from workers.data.roles import split_codes
from workers.data.scan import Inspection, Scan, scan
from workers.monitor import Cancelled, Silent

Columns = dict[str, list[Any]]
Write = Callable[..., Path]


@pytest.fixture
def scanned(columns: Columns, write: Write) -> Callable[..., Scan]:
    """Scan a parquet file of the spoiled columns."""

    def scanned(class_names: tuple[str, ...] = (), **spoiled: list[Any]) -> Scan:
        options = Parquet(subject_column="person", split_column="part", class_names=class_names)
        return scan(ParquetReader(str(write({**columns, **spoiled})), options), Silent())

    return scanned


def test_a_sound_data_set_has_no_faults(scanned: Callable[..., Scan]) -> None:
    """Its size, classes, image shape and splits are what they are."""
    found = scanned()
    assert found.faults == ()
    assert (found.count, found.num_classes, found.image_shape) == (12, 3, (6, 5, 3))
    assert found.splits.tolist() == split_codes(["train", "test", None] * 4, 12).tolist()


def test_the_digits_are_sound() -> None:
    """The data set of the demo passes its own inspection."""
    found = scan(DigitsReader("", SklearnDigits()), Silent())
    assert found.faults == ()
    assert (found.count, found.num_classes, found.image_shape) == (1797, 10, (8, 8, 1))
    assert found.class_names == tuple("0123456789")


def test_every_fault_is_reported_at_once(scanned: Callable[..., Scan], columns: Columns, png: Any) -> None:
    """Faults of all kinds in one file are all listed, each with the number of its row."""
    ids = ["same", "b", "same", "", None, "c\nd", "e" * 513, "f", "g", "h", "same", ""]
    images = list(columns["image"])
    images[7] = {"bytes": b"GIF89a", "path": None}
    images[8] = {"bytes": png(np.zeros((5, 6, 3), np.uint8)), "path": None}
    found = scanned(
        class_names=("a", "b"),
        sample_id=ids,
        label=[0, 1, -3, None, 2, 0, 0, 0, 0, 0, 0, 2**40],
        part=["train"] * 11 + ["dev"],
        person=["p"] * 9 + ["p\x00q"] + ["p"] * 2,
        image=images,
    )
    assert sorted(found.faults) == sorted(
        [
            "row 2: its label is missing, not an integer, or negative",
            "row 3: it has no sample ID",
            "row 3: its label is missing, not an integer, or negative",
            "row 4: it has no sample ID",
            "row 4: its label is 2, but the classes end at 1",
            "row 5: its sample ID has unprintable characters or more than 512",
            "row 6: its sample ID has unprintable characters or more than 512",
            "row 7: there are no bytes of a BMP, JPEG, PNG or WEBP image",
            "row 8: the image has shape (5, 6, 3), the first one (6, 5, 3)",
            "row 9: its subject has unprintable characters or more than 512",
            "row 11: it has no sample ID",
            f"row 11: its label is {2**40}, but the classes end at 1",
            "row 11: its split is none of holdout, test, train, validation",
        ]
    )


def test_faults_name_no_sample_and_no_subject(scanned: Callable[..., Scan]) -> None:
    """IDs and people do not leak into the text of a fault."""
    found = scanned(sample_id=["secret"] * 12, person=["someone\x07"] * 12)
    assert found.faults
    assert not any("secret" in fault or "someone" in fault for fault in found.faults)


@pytest.mark.parametrize("labels", [[0.0, 1.0] * 6, ["0", "1"] * 6, [True, False] * 6])
def test_labels_must_be_integers(scanned: Callable[..., Scan], labels: list[Any]) -> None:
    """Fractions, text and truth values are no labels."""
    found = scanned(label=labels)
    assert found.faults[0] == "row 0: its label is missing, not an integer, or negative"


def test_an_image_may_be_damaged_behind_a_sound_header(
    scanned: Callable[..., Scan], columns: Columns
) -> None:
    """The sampled images are decoded completely, so a cut-off one is found."""
    images = list(columns["image"])
    images[1] = {"bytes": images[1]["bytes"][:-30], "path": None}
    assert scanned(image=images).faults == ("row 1: the image is damaged",)


def test_many_faults_are_counted(scanned: Callable[..., Scan]) -> None:
    """Twenty faults are listed in the order of the rows, and how many more there are."""
    found = scanned(sample_id=[""] * 12, label=[-1] * 12)
    assert len(found.faults) == 21
    assert found.faults[:2] == (
        "row 0: it has no sample ID",
        "row 0: its label is missing, not an integer, or negative",
    )
    assert found.faults[-1] == "and 4 more faults"


def test_faults_found_elsewhere_are_counted_in(columns: Columns, write: Write) -> None:
    """What the database finds stands in one list with what the rows showed."""
    inspection = Inspection(ParquetReader(str(write({**columns, "label": [-1] * 12})), Parquet()))
    assert sum(len(chunk) for chunk in inspection.rows(Silent())) == 12
    found = inspection.result([(5, "it is odd")], 30)
    assert found.faults[11:] == (
        "row 11: its label is missing, not an integer, or negative",
        "row 5: it is odd",
        "and 30 more faults",
    )


def test_rows_with_faults_are_stored_as_far_as_they_can_be(columns: Columns, write: Write) -> None:
    """Without an ID there is nothing to store; a label that is no class is stored as 0."""
    path = write({**columns, "sample_id": ["a", "", "c", "d\0"] * 3, "label": [1, 1, 10**6, 1] * 3})
    inspection = Inspection(ParquetReader(str(path), Parquet()))
    chunks = list(inspection.rows(Silent()))
    assert [ordinal for chunk in chunks for ordinal in chunk.ordinals.tolist()] == [0, 2, 4, 6, 8, 10]
    assert [label for chunk in chunks for label in chunk.labels.tolist()] == [1, 0] * 3


def test_images_of_many_shapes_are_all_looked_at(scanned: Callable[..., Scan], png: Any) -> None:
    """The header of every image is read, also of those that are not decoded."""
    images = [
        {"bytes": png(np.zeros((6, 5 + number % 2, 3), np.uint8)), "path": None} for number in range(12)
    ]
    assert len(scanned(image=images).faults) == 6


def test_a_bomb_is_not_decoded(scanned: Callable[..., Scan], columns: Columns, png: Any) -> None:
    """An image whose header claims too many pixels is a fault of its row."""
    images = list(columns["image"])
    images[3] = {"bytes": png(np.zeros((1, 20_000), np.uint8)), "path": None}
    images[4] = {
        "bytes": png(np.zeros((1, 1, 3), np.uint8)).replace(b"\0\0\0\1\0\0\0\1", b"\0\1\0\0\0\1\0\0"),
        "path": None,
    }
    faults = scanned(image=images).faults
    assert faults[0] == "row 3: the image is larger than 1024 pixels a side"
    assert faults[1].startswith("row 4: ")
    assert len(faults) == 2


def test_one_class_is_none(scanned: Callable[..., Scan]) -> None:
    """There is nothing to classify if all labels are 0."""
    assert scanned(label=[0] * 12).faults == ("there are fewer than two classes",)


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ([0, 1, 2, 3] * 3, None),
        ([0, 3] * 6, None),  # half of them
        (
            [0, 4] * 6,
            "the largest label is 4, but 3 of the 5 classes up to it have no row (1, 2, 3):",
        ),
        (
            [0, 1, 2, 9999] * 3,
            "the largest label is 9999, but 9996 of the 10000 classes up to it have no row (3, 4, 5, …):",
        ),
    ],
)
def test_labels_with_gaps_do_not_invent_classes(
    scanned: Callable[..., Scan], labels: list[int], fault: str | None
) -> None:
    """If most classes up to the largest label have no row, the label is probably a mistake."""
    advice = "name the classes in the reader's options if that is meant"
    assert scanned(label=labels).faults == (() if fault is None else (f"{fault} {advice}",))


def test_named_classes_may_have_no_rows(scanned: Callable[..., Scan]) -> None:
    """Who names the classes has said how many there are."""
    found = scanned(class_names=tuple("abcdefgh"), label=[0, 7] * 6)
    assert (found.faults, found.num_classes) == ((), 8)


def test_too_many_rows_are_refused_before_they_are_read(write: Write, columns: Columns) -> None:
    """There is a limit, and the header's word is enough for it."""
    reader = ParquetReader(str(write(columns)), Parquet())
    reader._parts = [replace(reader._parts[0], count=10**9)]
    with pytest.raises(BadFormat, match="more than 999999999 rows"):
        scan(reader, Silent())


def test_no_rows_are_a_fault(write: Write, columns: Columns) -> None:
    """An empty file is reported, not registered."""
    path = write({name: values[:1] for name, values in columns.items()})
    empty = ParquetReader(str(path), Parquet())
    empty._parts = []
    assert scan(empty, Silent()).faults == ("the data set has no rows",)


def test_a_scan_can_be_cancelled(stops_after: Any) -> None:
    """The monitor is asked before every chunk."""
    with pytest.raises(Cancelled):
        scan(DigitsReader("", SklearnDigits()), stops_after(0))
