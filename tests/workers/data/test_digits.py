from __future__ import annotations

import collections

import numpy as np
import pytest
from sklearn.datasets import load_digits

from app.jobs.params import RoleShares, SklearnDigits
from models_store.rows import RowSet
from tests.fixtures.readers import Row, rows
from workers.data.digits import DigitsReader
from workers.data.loading import load
from workers.data.reader import BadFormat
from workers.data.roles import draw_roles, split_codes

TRUE_LABELS = load_digits().target


def _rows(**options: int) -> list[Row]:
    return list(rows(DigitsReader("", SklearnDigits(**options))))


@pytest.fixture(scope="module")
def dealt() -> list[Row]:
    return _rows()


def _wrong(dealt: list[Row]) -> list[Row]:
    return [row for row in dealt if row.label != TRUE_LABELS[row.ordinal]]


def test_the_images_are_scikit_learns(dealt: list[Row]) -> None:
    """All 1,797 images in their order, the range 0..16 spread over 0..255, under stable IDs."""
    images, labels = load(
        DigitsReader("", SklearnDigits(mislabelled_subjects=0)), RowSet.of(range(1797)), (8, 8, 1)
    )
    assert np.array_equal(np.rint(images[..., 0] / 255 * 16), load_digits().images)
    assert images.max() == 255
    assert np.array_equal(labels, TRUE_LABELS)
    assert [row.sample_id for row in dealt] == [f"digits-{i:04d}" for i in range(1797)]


def test_test_rows_are_fixed_clean_and_stratified(dealt: list[Row]) -> None:
    """360 test rows with true labels, belonging to nobody, the same for every seed, 35 to 38 a class."""
    test = [row for row in dealt if row.split == "test"]
    assert len(test) == 360
    assert all(row.label == TRUE_LABELS[row.ordinal] and row.subject is None for row in test)
    assert {row.ordinal for row in _rows(seed=5) if row.split == "test"} == {row.ordinal for row in test}
    counts = collections.Counter(row.label for row in test)
    assert set(counts.values()) <= {34, 35, 36, 37, 38}


def test_the_first_contributors_are_wrong_in_every_row(dealt: list[Row]) -> None:
    """Exactly the rows of contributor-00 to contributor-06 carry wrong labels, of all ten classes."""
    people = {f"contributor-{number:02d}" for number in range(7)}
    assert {row.ordinal for row in _wrong(dealt)} == {row.ordinal for row in dealt if row.subject in people}
    assert {row.label for row in _wrong(dealt)} == set(range(10))


def test_wrong_rows_are_shared_out_within_each_label(dealt: list[Row]) -> None:
    """63 each train, are held out and validate: as many of each wrong label, give or take one."""
    train, holdout, validation = (
        collections.Counter(row.label for row in _wrong(dealt) if row.split == split)
        for split in ("train", "holdout", "validation")
    )
    assert train.total() == holdout.total() == validation.total() == 63
    for other in (holdout, validation):
        assert all(abs(train[label] - other[label]) <= 1 for label in range(10))


def test_wrong_rows_are_a_twentieth_of_the_training_rows(dealt: list[Row]) -> None:
    """With the default shares the mislabelled training rows are 5% of all training rows."""
    roles = draw_roles(split_codes([row.split for row in dealt], len(dealt)), RoleShares(), seed=0)
    assert 0.048 < 63 / len(roles["train"]) < 0.057


def test_sixty_people_share_the_other_rows(dealt: list[Row]) -> None:
    """Every row but the test rows belongs to one of 60 people, each with at least 23 rows."""
    counts = collections.Counter(row.subject for row in dealt if row.split != "test")
    assert len(counts) == 60
    assert None not in counts
    assert min(counts.values()) == 23


def test_the_seed_deals_the_rows() -> None:
    """The same seed gives the same data set, another seed another one."""
    assert _rows(seed=1) == _rows(seed=1)
    assert [row.subject for row in _rows(seed=1)] != [row.subject for row in _rows(seed=2)]


def test_nobody_need_be_wrong() -> None:
    """Without mislabelled subjects every label is true and no row is kept back."""
    clean = _rows(mislabelled_subjects=0)
    assert not _wrong(clean)
    assert {row.split for row in clean} == {None, "test"}
    assert len({row.subject for row in clean} - {None}) == 60


def test_a_location_is_refused() -> None:
    """The digits are in no file."""
    with pytest.raises(BadFormat):
        DigitsReader("/data", SklearnDigits())
