"""Pictures against the numbers they are drawn from, read out of the SVG; tables against the figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest

from workers.audit.drawing import COLOURS
from workers.audit.pictures import (
    Table,
    entanglement_picture,
    entanglement_table,
    feature_map_picture,
    feature_map_table,
    landscape_picture,
    landscape_table,
    sharpness_picture,
    sharpness_table,
)

SVG = "{http://www.w3.org/2000/svg}"
AXIS = [-0.5, 0.0, 0.5]
LANDSCAPE: dict[str, Any] = {
    "axis": AXIS,
    "forget": [[2.0, 1.0, 2.0], [2.0, 0.25, 2.0], [3.0, 1.0, None]],
    "retain": [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]],
    "rows": {"forget": 5, "retain": 7},
}
FEATURE_MAP: dict[str, Any] = {
    "method": "pca",
    "explained": [0.41, 0.2],
    "points": {
        "retain": [[0.0, 0.0, 1], [2.0, 0.0, 2], [1.0, 3.0, 1]],
        "forget": [[4.0, 4.0, 0], [6.0, 4.0, 0]],
        "holdout": [],
    },
}
ENTANGLEMENT: dict[str, Any] = {
    "original": {
        "score": 3.5,
        "variance": 260.0,
        "variance_scaled": 0.2,
        "transport": {"mean": 0.7, "deviation": 0.02, "rows": 9, "repeats": 5},
    },
    "unlearned": None,
    "reference": {
        "score": None,
        "variance": None,
        "variance_scaled": None,
        "transport": {"mean": 0.35, "deviation": None, "rows": 9, "repeats": 1},
    },
}
SHARPNESS: dict[str, Any] = {
    "original": {
        "forget": {"ascent": 0.5, "top_eigenvalue": 12.0, "residual": 0.01, "rows": 5},
        "retain": {"ascent": 0.25, "top_eigenvalue": 6.0, "residual": 0.02, "rows": 7},
    },
    "unlearned": {
        "forget": {"ascent": 1.5, "top_eigenvalue": -3.0, "residual": 0.03, "rows": 5},
        "retain": {"ascent": None, "top_eigenvalue": None, "residual": None, "rows": 0},
    },
}
Draw = Callable[[Any], str]
PICTURES: list[tuple[Draw, Any]] = [
    (landscape_picture, LANDSCAPE),
    (feature_map_picture, FEATURE_MAP),
    (entanglement_picture, ENTANGLEMENT),
    (sharpness_picture, SHARPNESS),
]


def parsed(svg: str) -> Element:
    return ElementTree.fromstring(svg)


def shown(svg: str) -> str:
    """The text of the picture itself, without title and description."""
    return " ".join("".join(element.itertext()) for element in parsed(svg).iter(f"{SVG}text"))


def described(svg: str) -> str:
    return parsed(svg)[1].text or ""


def group(svg: str, name: str) -> Element:
    return next(element for element in parsed(svg).iter(f"{SVG}g") if element.get("id") == name)


def outlines(element: Element) -> dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]]:
    """The corners [n, 2] of filled paths, by their colour; y grows downward."""
    found: dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]] = {}
    for path in element.iter(f"{SVG}path"):
        colour = re.search(r"fill: (#[0-9a-f]{6})", path.get("style") or "")
        numbers = re.findall(r"-?\d+\.?\d*", path.get("d") or "")
        if colour and numbers:
            found.setdefault(colour[1], []).append(np.array(numbers, dtype=np.float64).reshape(-1, 2))
    return found


def widths(element: Element, colour: str) -> list[float]:
    return [float(np.ptp(corners[:, 0])) for corners in outlines(element)[colour]]


class TestEveryPicture:
    @pytest.mark.parametrize(("draw", "figures"), PICTURES)
    def test_same_figures_same_bytes(self, draw: Draw, figures: Any) -> None:
        """One SVG element without a date or a random identifier."""
        first, second = draw(figures), draw(figures)
        assert first == second
        assert first.startswith("<svg")
        assert "date" not in first
        assert len(first) < 100_000

    @pytest.mark.parametrize(("draw", "figures"), PICTURES)
    def test_is_named_for_screen_readers(self, draw: Draw, figures: Any) -> None:
        """Title and description come first, where they name the whole image."""
        root = parsed(draw(figures))
        assert root.get("role") == "img"
        assert [child.tag for child in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
        assert all(child.text and len(child.text) > 10 for child in root[:2])


class TestLandscape:
    @pytest.mark.parametrize("turned", [False, True])
    def test_the_higher_loss_lies_where_it_was_measured(self, turned: bool) -> None:
        """Along the second direction it is drawn to the right, along the first upward."""
        rising = np.tile([1.0, 2.0, 3.0], (3, 1))
        losses = rising.T if turned else rising
        svg = landscape_picture(LANDSCAPE | {"forget": losses.tolist()})
        by_colour = outlines(group(svg, "axes_1"))
        # cividis goes from dark blue to yellow: by the sum of its channels it grows lighter.
        levels = sorted(
            (colour for colour in by_colour if colour != "#ffffff"),
            key=lambda colour: sum(bytes.fromhex(colour[1:])),
        )
        assert len(levels) == 12
        dark, light = (np.concatenate(by_colour[levels[end]]).mean(axis=0) for end in (0, -1))
        right, down = light - dark
        assert (right, -down)[turned] > 50
        assert abs((right, down)[not turned]) < 10

    def test_says_the_range_and_the_loss_at_the_network(self) -> None:
        """In words, for those who do not see the colours."""
        said = described(landscape_picture(LANDSCAPE))
        assert "Rows to forget: 0.25 to 3 nats; at the network 0.25." in said
        assert "Remaining rows: 1 to 3 nats; at the network 2." in said

    def test_says_what_was_not_measured(self) -> None:
        """A panel without any finite loss, and one of a constant loss."""
        svg = landscape_picture(LANDSCAPE | {"forget": [[None] * 3] * 3, "retain": [[2.0] * 3] * 3})
        assert shown(svg).count("not measured") == 1
        assert "The loss of the rows to forget was not measured." in described(svg)
        assert "2 to 2 nats" in described(svg)

    def test_the_table_holds_every_loss(self) -> None:
        """A row for each place along the first direction."""
        table = landscape_table(LANDSCAPE)
        assert table.header == ["set", "first direction", "second -0.5", "second 0", "second 0.5"]
        assert table.rows[2] == ["rows to forget", 0.5, 3.0, 1.0, None]
        assert table.rows[3] == ["remaining rows", -0.5, 1.0, 2.0, 3.0]
        assert len(table.rows) == 6


class TestFeatureMap:
    def test_one_mark_a_row_in_the_colour_of_its_set(self) -> None:
        """And one more of each in the legend, which says how many there are."""
        svg = feature_map_picture(FEATURE_MAP)
        marks = [use.get("style") or "" for use in parsed(svg).iter(f"{SVG}use")]
        counts = {name: sum(colour in mark for mark in marks) for name, colour in COLOURS.items()}
        assert counts == {"retain": 3 + 1, "forget": 2 + 1, "holdout": 0}
        assert "3 remaining rows" in shown(svg)
        assert "PCA 1 (41% of the variance)" in shown(svg)

    def test_names_its_method(self) -> None:
        """A UMAP explains no variance."""
        svg = feature_map_picture(FEATURE_MAP | {"method": "umap", "explained": None})
        assert "UMAP 1" in shown(svg)
        assert "variance" not in shown(svg)
        assert "by UMAP: 3 remaining rows" in described(svg)

    def test_the_table_sums_up_each_set(self) -> None:
        """F at (4, 4) and (6, 4): its centre is (5, 4), and both are 1 from it."""
        table = feature_map_table(FEATURE_MAP)
        assert table.rows[0] == ["rows to forget", 2, 5.0, 4.0, 1.0]
        assert table.rows[1] == ["remaining rows", 3, 1.0, 1.0, pytest.approx((8 / 3) ** 0.5)]
        assert table.rows[2] == ["rows never trained on", 0, None, None, None]

    def test_no_features(self) -> None:
        """Said, in picture and table."""
        assert "not measured" in shown(feature_map_picture(None))
        assert feature_map_table(None).rows == []

    def test_a_full_map_is_not_too_large_for_a_page(self) -> None:
        """500 points of each set."""
        places = np.random.default_rng(0).normal(size=(500, 2)).tolist()
        points = {name: [[*place, 0] for place in places] for name in COLOURS}
        assert len(feature_map_picture(FEATURE_MAP | {"points": points})) < 250_000


class TestBars:
    def test_bars_are_as_long_as_their_values(self) -> None:
        """0.5 to 1.5 in the first panel, 12 to -3, which points the other way, in the second."""
        svg = sharpness_picture(SHARPNESS)
        first, second = (widths(group(svg, name), COLOURS["forget"]) for name in ("axes_1", "axes_2"))
        assert first[1] / first[0] == pytest.approx(3.0, rel=1e-4)
        assert second[1] / second[0] == pytest.approx(0.25, rel=1e-4)
        remaining = widths(group(svg, "axes_1"), COLOURS["retain"])
        assert remaining[0] / first[0] == pytest.approx(0.5, rel=1e-4)

    def test_values_stand_beside_the_bars_and_in_the_description(self) -> None:
        """With the deviation where there is one; what was not measured is said."""
        svg = entanglement_picture(ENTANGLEMENT)
        for told in (shown(svg), described(svg)):
            assert "0.7 ± 0.02" in told
            assert "0.35" in told
            assert told.count("not measured") == 3
        assert "after unlearning not measured" in described(svg)

    def test_nothing_at_all_was_measured(self) -> None:
        """It is a picture all the same."""
        assert shown(entanglement_picture({"original": None})).count("not measured") == 2

    def test_the_tables_hold_the_figures(self) -> None:
        """A row for each network, and for each set of it."""
        assert entanglement_table(ENTANGLEMENT).rows == [
            ["before", 260.0, 0.2, 0.7, 0.02, 3.5],
            ["after unlearning", None, None, None, None, None],
            ["retrained without these rows", None, None, 0.35, None, None],
        ]
        assert sharpness_table(SHARPNESS).rows == [
            ["before", "rows to forget", 0.5, 12.0, 0.01, 5],
            ["before", "remaining rows", 0.25, 6.0, 0.02, 7],
            ["after unlearning", "rows to forget", 1.5, -3.0, 0.03, 5],
            ["after unlearning", "remaining rows", None, None, None, 0],
        ]


@pytest.mark.parametrize(
    "table",
    [
        landscape_table(LANDSCAPE),
        feature_map_table(FEATURE_MAP),
        entanglement_table(ENTANGLEMENT),
        sharpness_table(SHARPNESS),
    ],
)
def test_tables_are_rectangular_and_plain(table: Table) -> None:
    """As many values a row as columns, of types that JSON has."""
    assert all(len(row) == len(table.header) for row in table.rows)
    assert {type(value) for row in table.rows for value in row} <= {str, int, float, type(None)}
