from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.jobs.params import Parquet, SklearnDigits
from workers.data.digits import DigitsReader
from workers.data.parquet import ParquetReader
from workers.data.scan import Scan, scan
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
    assert found.splits == ["train", "test", None] * 4


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
        label=[0, 1, -3, None, 2, 0, 0, 0, 0, 0, 0, 0],
        part=["train"] * 11 + ["dev"],
        person=["p"] * 9 + ["p\x00q"] + ["p"] * 2,
        image=images,
    )
    assert sorted(found.faults) == sorted(
        [
            "row 2: its label is missing, not an integer, or negative",
            "row 2: it has the same sample ID as row 0",
            "row 3: it has no sample ID",
            "row 3: its label is missing, not an integer, or negative",
            "row 4: it has no sample ID",
            "row 4: its label is 2, but the classes end at 1",
            "row 5: its sample ID has unprintable characters or more than 512",
            "row 6: its sample ID has unprintable characters or more than 512",
            "row 7: there are no bytes of a BMP, JPEG, PNG or WEBP image",
            "row 8: the image has shape (5, 6, 3), the first one (6, 5, 3)",
            "row 9: its subject has unprintable characters or more than 512",
            "row 10: it has the same sample ID as row 0",
            "row 11: it has no sample ID",
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
    """Twenty faults are listed, and how many more there are."""
    found = scanned(sample_id=[""] * 12, label=[-1] * 12)
    assert len(found.faults) == 21
    assert found.faults[-1] == "and 4 more faults"


def test_one_class_is_none(scanned: Callable[..., Scan]) -> None:
    """There is nothing to classify if all labels are 0."""
    assert scanned(label=[0] * 12).faults == ("there are fewer than two classes",)


def test_no_rows_are_a_fault(write: Write, columns: Columns) -> None:
    """An empty file is reported, not registered."""
    path = write({name: values[:1] for name, values in columns.items()})
    empty = ParquetReader(str(path), Parquet())
    empty._parts = []
    assert scan(empty, Silent()).faults == ("the data set has no rows",)


def test_a_scan_can_be_cancelled(stops_after: Any) -> None:
    """The monitor is asked every few hundred rows."""
    with pytest.raises(Cancelled):
        scan(DigitsReader("", SklearnDigits()), stops_after(3))
