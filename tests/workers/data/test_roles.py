from __future__ import annotations

import collections

from app.jobs.params import RoleShares
from workers.data.roles import draw_roles


def test_rows_without_a_split_are_drawn_by_shares() -> None:
    """The numbers of holdout, validation and test rows are the rounded shares; the rest trains."""
    roles = draw_roles([None] * 1000, RoleShares(holdout=0.1, validation=0.05, test=0.2), seed=0)
    assert collections.Counter(roles) == {"train": 650, "test": 200, "holdout": 100, "validation": 50}


def test_given_splits_are_kept() -> None:
    """A row that comes with a split keeps it, whatever is drawn for the others."""
    given = ["train", "holdout", "test", "validation", None, None] * 50
    roles = draw_roles(given, RoleShares(), seed=3)
    assert all(split in {None, role} for split, role in zip(given, roles, strict=True))


def test_test_rows_are_drawn_only_where_none_are_given() -> None:
    """A data set that brings its own test rows loses no others to testing."""
    roles = draw_roles(["test"] * 10 + [None] * 100, RoleShares(), seed=0)
    assert roles.count("test") == 10


def test_the_seed_decides() -> None:
    """Equal seeds draw equal roles, others draw others."""
    splits = [None] * 200
    assert draw_roles(splits, RoleShares(), seed=1) == draw_roles(splits, RoleShares(), seed=1)
    assert draw_roles(splits, RoleShares(), seed=1) != draw_roles(splits, RoleShares(), seed=2)


def test_no_rows_no_roles() -> None:
    """An empty data set has no roles."""
    assert draw_roles([], RoleShares(), seed=0) == []
