from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from app.jobs.params import RoleShares
from models_store.rows import RowSet
from workers.data import roles as module
from workers.data.roles import ROLES, draw_roles, split_codes

Splits = Sequence[str | None]


def _draw(splits: Splits, shares: RoleShares, seed: int) -> dict[str, RowSet]:
    return draw_roles(split_codes(splits, len(splits)), shares, seed)


def _counts(roles: Mapping[str, RowSet]) -> dict[str, int]:
    return {role: len(rows) for role, rows in roles.items()}


def _draw_at_once(splits: Splits, shares: RoleShares, seed: int) -> dict[str, set[int]]:
    """The draw without blocks, as written down when the first data sets were registered."""
    found = [split or "" for split in splits]
    undecided = [ordinal for ordinal, role in enumerate(found) if not role]
    drawn = np.random.default_rng(seed).permutation(undecided).tolist()
    total = len(drawn)
    for role, share in [
        ("holdout", shares.holdout),
        ("validation", shares.validation),
        ("test", shares.test),
    ]:
        if role != "test" or "test" not in splits:
            for _ in range(round(share * total)):
                found[drawn.pop(0)] = role
    for ordinal in drawn:
        found[ordinal] = "train"
    return {role: {ordinal for ordinal, other in enumerate(found) if other == role} for role in ROLES}


@given(
    st.lists(st.sampled_from([None, None, None, *ROLES]), max_size=200),
    st.integers(0, 2**32),
    st.sampled_from([RoleShares(), RoleShares(holdout=0.3, validation=0, test=0.3), RoleShares(test=0)]),
)
def test_a_small_data_set_is_drawn_as_ever(splits: Splits, seed: int, shares: RoleShares) -> None:
    """What fits into one block is one permutation of the rows without a split, cut by the shares."""
    drawn = {role: set(rows) for role, rows in _draw(splits, shares, seed).items()}
    assert drawn == _draw_at_once(splits, shares, seed)


def test_the_demo_keeps_its_roles() -> None:
    """The published figures of the digits depend on which rows were drawn for what."""
    roles = _draw([None] * 1797, RoleShares(), seed=0)
    assert _counts(roles) == {"train": 1168, "validation": 90, "holdout": 180, "test": 359}
    assert list(roles["holdout"])[:6] == [12, 20, 28, 53, 68, 72]


@pytest.mark.parametrize("count", [800, 1000, 1005])
def test_blocks_change_no_count(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Drawn in blocks too, the numbers of rows are the rounded shares, and each row has one role."""
    monkeypatch.setattr(module, "_BLOCK_ROWS", 80)
    splits = ([None] * 4 + ["train"]) * (count // 5)
    roles = _draw(splits, RoleShares(), seed=0)
    free = 4 * count // 5
    kept_out = {"validation": round(0.05 * free), "holdout": round(0.1 * free), "test": round(0.2 * free)}
    assert _counts(roles) == {"train": count - sum(kept_out.values()), **kept_out}
    assert sorted(ordinal for rows in roles.values() for ordinal in rows) == list(range(count))


def test_blocks_favour_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many seeds every place, in whichever block, is held out equally often."""
    monkeypatch.setattr(module, "_BLOCK_ROWS", 8)
    times = np.zeros(20)
    for seed in range(2000):
        times[list(_draw([None] * 20, RoleShares(holdout=0.2, validation=0, test=0), seed)["holdout"])] += 1
    assert times.sum() == 2000 * 4
    assert chisquare(times).pvalue > 0.001


def test_blocks_leave_the_number_in_each_to_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many held-out rows the first block has varies as in a draw from the whole: hypergeometrically."""
    monkeypatch.setattr(module, "_BLOCK_ROWS", 8)
    shares = RoleShares(holdout=0.25, validation=0, test=0)
    first = [
        sum(ordinal < 8 for ordinal in _draw([None] * 16, shares, seed)["holdout"]) for seed in range(2000)
    ]
    # 4 of 16 rows; C(8, k) * C(8, 4 - k) / C(16, 4)
    expected = np.array([70, 448, 784, 448, 70]) / 1820 * 2000
    assert chisquare(np.bincount(first, minlength=5), expected).pvalue > 0.001


def test_given_splits_are_kept() -> None:
    """A row that comes with a split keeps it, whatever is drawn for the others."""
    splits = ["train", "holdout", "test", "validation", None, None] * 50
    roles = _draw(splits, RoleShares(), seed=3)
    assert all(ordinal in roles[split] for ordinal, split in enumerate(splits) if split is not None)


def test_test_rows_are_drawn_only_where_none_are_given() -> None:
    """A data set that brings its own test rows loses no others to testing."""
    assert _counts(_draw(["test"] * 10 + [None] * 100, RoleShares(), seed=0))["test"] == 10


def test_the_seed_decides() -> None:
    """Equal seeds draw equal roles, others draw others."""
    splits = [None] * 200
    assert _draw(splits, RoleShares(), seed=1) == _draw(splits, RoleShares(), seed=1)
    assert _draw(splits, RoleShares(), seed=1) != _draw(splits, RoleShares(), seed=2)


def test_no_rows_no_roles() -> None:
    """In an empty data set no role has a row."""
    assert _counts(_draw([], RoleShares(), seed=0)) == dict.fromkeys(ROLES, 0)


def test_unknown_splits_have_a_code_of_their_own() -> None:
    """They are not taken for rows without a split, which would be drawn."""
    codes = split_codes(["train", "dev", None], 3).tolist()
    assert codes == [0, module.UNKNOWN, module.UNDECIDED]
    assert split_codes(None, 2).tolist() == [module.UNDECIDED] * 2
