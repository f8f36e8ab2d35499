"""What the audit found elsewhere, as sections of the page: figures by hand, each said as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from app.reports.lines import Cell, Section, bar
from app.reports.render import render_html, render_text
from app.reports.sections import sections
from tests.reports.conftest import area_of, difference_of, rate_of

MakeReport = Callable[..., dict[str, Any]]
NETWORKS = ("original", "unlearned", "reference")


def _calibrated(auc: float, *, references: int = 4) -> dict[str, Any]:
    several = references > 1
    held_out = {"aucs": [0.49, 0.51], "low": 0.44, "high": 0.56, "rank_p": 0.2}
    return {
        "references": references,
        "centred": area_of(auc, 0.02, 0.5),
        "spread_auc": area_of(0.53, 0.02, 0.5),
        "held_out": held_out if several else None,
        "held_out_spread": {**held_out, "low": 0.47, "high": 0.55} if several else None,
        "spread": {"forget": 1.0, "holdout": 1.0, "quotient": 1.0} if several else None,
        "most_memorised": {**area_of(auc, 0.1, 0.5), "rows": 80} if several else None,
    }


def _share(called: int, n: int) -> dict[str, Any]:
    return {"called_non_member": called, **rate_of(called, n), "attacker": rate_of(130, 200)}


def further(*, references: int = 4) -> dict[str, Any]:
    """What an audit measures beyond the main table, with so many references."""
    places = {"forget": rate_of(600, 800), "holdout": rate_of(540, 900)}
    rounded = {**dict.fromkeys(NETWORKS, places), "excess": difference_of((0.012, 0.01, 0.4))}
    probe = {**places, "gap": 0.15, **{k: v for k, v in area_of(0.15, 0.02, 0.1).items() if k != "auc"}}
    customary = {
        "svc": {"confidence": _share(400, 800), "entropy": _share(200, 800)},
        "threshold": {"confidence": _share(300, 800)},
        "loss_regression": {"accuracy": 0.61, "deviation": 0.04, "n": 800},
    }
    label = {"label": 3, **rate_of(30, 40)}
    mean = {"n": references, "mean": 0.91, "low": 0.9, "high": 0.92}
    return {
        "calibrated": {
            "original": _calibrated(0.8, references=references),
            "unlearned": _calibrated(0.52, references=references),
        },
        "calibrated_noisy": {
            "original": _calibrated(0.78, references=references),
            "unlearned": _calibrated(0.51, references=references),
        },
        "calibrated_difference": difference_of((-0.28, 0.02, 1e-9)),
        "rmia": {name: area_of(0.55, 0.02, 0.5) for name in NETWORKS[:2]},
        "divergence": {
            "unlearned": {"forget": {"mean": 0.031, "floor": 0.02, "excess": 0.011}, "holdout": None}
        },
        "over_references": {
            "tug_of_war": {"original": mean, "unlearned": mean, "references": 0.98},
            "tug_of_war_mia": None,
        },
        "shadow_attack": {
            "ulira": area_of(0.54, 0.02, 0.5),
            "offline": area_of(0.53, 0.02, 0.5),
            "shadows": 8,
            "rows": {"forget": 790, "holdout": 880},
        },
        "noisy": {name: area_of(0.57, 0.02, 0.5) for name in NETWORKS},
        "probe": {**dict.fromkeys(NETWORKS, probe), "excess": difference_of((0.01, 0.02, 0.4))},
        "rounded": {"int8": rounded, "int4": None},
        "relearning": {
            "target": 0.665,
            "budget": 32,
            "steps": {"original": 0, "unlearned": 6, "references": [4, None]},
            "ain": 1.5,
            "ain_at_least": None,
        },
        "blind": {**area_of(0.48, 0.05, 0.5), "forget": 700, "holdout": 650},
        "retained": {
            "original": area_of(0.9, 0.01, 1e-9),
            "unlearned": area_of(0.91, 0.01, 1e-9),
            "difference": difference_of((0.01, 0.01, 0.1)),
            "n": 2000,
        },
        "moved": {
            "tensors": 12,
            "changed": 3,
            "share": 0.25,
            "relative": 0.031,
            "head_only": False,
            "layers": [{"name": "head.weight", "relative": None, "changed": 1.0}],
        },
        "artefact": {"faults": []},
        "accuracy_by_class": {name: {"retain": [label], "forget": [label], "test": []} for name in NETWORKS},
        "customary": {**dict.fromkeys(NETWORKS, customary), "reference": None},
    }


@pytest.fixture
def figures(make_report: MakeReport) -> dict[str, Any]:
    """Those of a report of 800 deleted rows, with everything that an audit measures."""
    found: dict[str, Any] = make_report()["figures"]
    return {**found, **further()}


def _section(figures: dict[str, Any], heading: str) -> Section:
    return next(section for section in sections(figures) if section.heading == heading)


def _cells(section: Section, label: str) -> list[str | None]:
    (line,) = [line for line in section.lines if line.label == label]
    assert len(line.cells) == len(section.columns)
    return [_said(cell) for cell in line.cells]


def _said(cell: Cell | None) -> str | None:
    if cell is None:
        return None
    return f"{cell.text} {cell.interval}".strip() + (f" of {cell.rows}" if cell.rows else "")


def test_a_report_from_before_has_none(make_report: MakeReport) -> None:
    """Nor one whose audit could not measure any of them: nothing is made up."""
    assert list(sections(make_report()["figures"])) == []
    empty = {**make_report()["figures"], **dict.fromkeys(further())}
    assert list(sections(empty)) == []


def test_the_calibrated_attack_stands_beside_what_is_usual(figures: dict[str, Any]) -> None:
    """Before and after with intervals and rows, and the range of retrained networks."""
    section = _section(figures, "Beside retrained networks")
    assert section.columns == ("Before", "After", "Usual range")
    assert _cells(section, "Calibrated attack: AUC") == [
        "0.800 [0.776, 0.824] of 800",
        "0.520 [0.496, 0.544] of 800",
        "range [0.440, 0.560]",
    ]
    assert _cells(section, "Most memorised tenth: AUC")[1:] == ["0.520 [0.400, 0.640] of 80", None]
    assert _cells(section, "Unlike retrained networks: AUC")[2] == "range [0.470, 0.550]"
    assert "4 networks, retrained without the deleted rows, are" in section.intro
    change, apart = section.notes
    assert change == "From before to after, the calibrated attack's AUC changed by -0.280 [-0.304, -0.256]."
    assert "by 0.031 bits, and theirs from one another by 0.020" in apart
    assert [row for table in section.tables for row in table.rows] == [
        ["Tug of war", "0.910 [0.900, 0.920]", "0.910 [0.900, 0.920]", "0.980"]
    ]


def test_one_retrained_network_gives_no_range(figures: dict[str, Any]) -> None:
    """Nor a tenth that it could choose and judge alike."""
    figures |= further(references=1)
    section = _section(figures, "Beside retrained networks")
    assert _cells(section, "Calibrated attack: AUC")[2] is None
    assert "Most memorised tenth: AUC" not in [line.label for line in section.lines]
    assert "1 network, retrained without the deleted rows, is" in section.intro


def test_the_attacks_beside_shadows(figures: dict[str, Any]) -> None:
    """They are of the unlearned network alone, and of those rows that shadows had."""
    section = _section(figures, "Row by row, beside shadow networks")
    assert section.columns == ("After",)
    assert _cells(section, "Row-by-row attack (U-LiRA): AUC") == ["0.540 [0.516, 0.564] of 790"]
    assert section.intro.startswith("8 shadow networks")
    assert "forgot by this very method" in section.intro
    assert "Tried on 790 deleted rows and 880 unseen rows." in section.intro


def test_shadows_that_forgot_nothing_show_less(figures: dict[str, Any]) -> None:
    """Only the attack that asks how rows look to networks without them."""
    figures["shadow_attack"]["ulira"] = None
    section = _section(figures, "Row by row, beside shadow networks")
    assert [line.label for line in section.lines] == ["One-sided attack (LiRA): AUC"]
    assert "this very method" not in section.intro


def test_other_places(figures: dict[str, Any]) -> None:
    """Every network on noisy images, with a new last layer and with rounded weights; excesses in words."""
    section = _section(figures, "Looking in other places")
    assert section.columns == ("Before", "After", "Retrained")
    assert _cells(section, "Attack on noisy images: AUC") == ["0.570 [0.546, 0.594] of 800"] * 3
    assert _cells(section, "New last layer: deleted rows right") == ["75.0% [71.9, 78.1] of 800"] * 3
    assert _cells(section, "New last layer: the gap") == ["+15.0 points [+12.6, +17.4] of 800"] * 3
    assert _cells(section, "8-bit weights: unseen rows right") == ["60.0% [56.7, 63.3] of 900"] * 3
    assert not [line.label for line in section.lines if "4-bit" in line.label]
    (excess,) = section.notes
    assert excess.endswith(
        "a new last layer +1.0 points [-1.4, +3.4]; 8-bit weights +1.2 points [+0.0, +2.4]."
    )


@pytest.mark.parametrize(
    ("spoilt", "steps", "index"),
    [
        ({}, "6", "network's: 1.5. Below 1"),
        ({"ain": None, "ain_at_least": 8.0, "unlearned": None}, "more than 32", "network's: more than 8. "),
        ({"ain": None}, "6", "There is no relearning index"),
        ({"ain": 0.0, "unlearned": 0}, "0", "network's: 0. Below 1"),
    ],
)
def test_relearning(figures: dict[str, Any], spoilt: dict[str, Any], steps: str, index: str) -> None:
    """Steps of each network, those that did not get there as more than were tried; the index or its bound."""
    known = figures["relearning"]
    known |= {name: value for name, value in spoilt.items() if name in known}
    known["steps"]["unlearned"] = spoilt.get("unlearned", 6)
    section = _section(figures, "How fast it comes back")
    assert _cells(section, "Steps until known again") == ["0", steps, "4, more than 32"]
    assert "right on 66.5% of them" in section.intro
    assert index in section.notes[0]


def test_what_the_comparison_is_worth(figures: dict[str, Any]) -> None:
    """The attack that asks no network, and the one on rows that remain."""
    blind = _section(figures, "Is the comparison fair?")
    assert _cells(blind, "Attack without a network: AUC") == ["0.480 [0.420, 0.540] of 700"]
    assert "half of these and of 650 unseen rows" in blind.notes[0]
    retained = _section(figures, "The rows that remain")
    assert _cells(retained, "Attack on remaining rows: AUC") == [
        "0.900 [0.888, 0.912] of 2000",
        "0.910 [0.898, 0.922] of 2000",
    ]
    assert "changed by +0.010 [-0.002, +0.022]" in retained.notes[0]


def test_what_was_changed(figures: dict[str, Any]) -> None:
    """How much moved, whether the last layer alone, and each fault of how the network is built."""
    section = _section(figures, "What was changed in the network")
    assert section.notes == (
        "3 of 12 tensors changed, and 25% of all values. All together moved by 3.1% of their length.",
        "It is built as the original is: nothing was added to it.",
    )
    assert [table.rows for table in section.tables] == [[["head.weight", "–", "100%"]]]
    figures["moved"] |= {"head_only": True, "relative": None}
    figures["artefact"] = {"faults": ["buffer answers, [3, 10], is not part of the original"]}
    notes = _section(figures, "What was changed in the network").notes
    assert "moved by an unknown part of" in notes[0]
    assert notes[1].startswith("Of all layers only the last was trained")
    assert (
        notes[2] == "It is not built as the original is: buffer answers, [3, 10], is not part of the original"
    )


def test_class_by_class(figures: dict[str, Any]) -> None:
    """A table a set that has rows, a line a class; a class that one network lacks is a dash there."""
    figures["accuracy_by_class"]["reference"] = {"retain": [], "forget": [], "test": []}
    tables = _section(figures, "Class by class").tables
    assert [table.caption.split(" ", 1)[0] for table in tables] == ["Deleted", "Remaining"]
    assert tables[0].header == ["class", "rows", "Before", "After", "Retrained"]
    assert tables[0].rows == [["3", "40", "75.0% [59.1, 90.9]", "75.0% [59.1, 90.9]", "–"]]


def test_customary_attacks(figures: dict[str, Any]) -> None:
    """What they say, how often they are right, and that no verdict rests on them."""
    section = _section(figures, "Customary attacks")
    assert section.intro.startswith("No verdict rests on these.")
    called, right, regression = section.tables
    assert called.header == ["attack", "looks at", "Before", "After"]
    assert called.caption.startswith("Share of 800 deleted rows")
    assert called.rows[0] == [
        *("support vectors", "its probability of the label", "50.0% [46.4, 53.6]", "50.0% [46.4, 53.6]")
    ]
    assert [row[:2] for row in called.rows][-1] == ["best threshold", "its probability of the label"]
    assert "200 other rows" in right.caption
    assert right.rows[0][2].startswith("65.0% [")
    assert regression.rows == [["right", "61.0% ± 4.0", "61.0% ± 4.0"]]


def test_a_range_is_drawn_without_a_point() -> None:
    """A bar has a point only where there is one figure, and none where there is no share to draw."""
    assert bar(Cell(text="range", place=(0.25, None, 0.75))) == {"x1": "29.0", "x2": "79.0"}
    assert bar(Cell(text="0.5", place=(0.25, 0.5, 0.75)))["cx"] == "54.0"
    assert bar(Cell(text="2 steps")) == {}


class TestPage:
    def test_shows_every_section(self, make_report: MakeReport, figures: dict[str, Any]) -> None:
        """With its heading, and its tables folded, each with a caption."""
        report = make_report()
        report["figures"] = figures
        source = render_html(report)
        for section in sections(figures):
            assert f"<h3>{section.heading}</h3>" in source
            for table in section.tables:
                assert f"<summary>{table.caption}</summary>" in source
        assert source.count("<caption") == source.count("<table>")
        assert source.count("<details>") == sum(len(section.tables) for section in sections(figures)) == 7

    def test_names_are_escaped(self, make_report: MakeReport, figures: dict[str, Any]) -> None:
        """A tensor or a fault named like markup is text."""
        report = make_report()
        report["figures"] = figures
        figures["artefact"] = {"faults": ["<script>alert(1)</script>"]}
        figures["moved"]["layers"][0]["name"] = "<img src=x>"
        figures["tables"] = {"sharpness.svg": {"header": ["<b>"], "rows": [["<i>"]]}}
        source = render_html(report, pictures={"sharpness.svg": "<svg/>"})
        assert not re.search(r"<script|<img src=x|<b>|<i>", source)
        assert source.count("&lt;") == 5

    def test_pictures_have_their_numbers_below(
        self, make_report: MakeReport, figures: dict[str, Any]
    ) -> None:
        """In a fixed order, with words for those who do not see them; unknown ones are left out."""
        report = make_report()
        numbers = {
            "header": ["network", "rows", "nats"],
            "rows": [["before", 1200, 0.123456], ["after", 3, None]],
        }
        report["figures"] = {**figures, "tables": {"sharpness.svg": numbers}}
        names = ("features-reference.svg", "sharpness.svg", "margins.svg", "landscape-unlearned.svg", "x.svg")
        source = render_html(report, pictures=dict.fromkeys(names, "<svg/>"))
        alts = re.findall(r'<img src="data:image/svg\+xml;base64,PHN2Zy8\+" alt="([^"]+)"', source)
        assert [alt.split(" ")[0] for alt in alts] == ["Histograms", "Bars", "After:", "Retrained:"]
        cells = re.findall(r"<td>([^<]*)</td>", source.split("<summary>In numbers</summary>")[1])
        assert cells[:6] == ["before", "1,200", "0.123", "after", "3", "–"]
        assert source.count("<summary>In numbers</summary>") == 1

    def test_the_margin_shows_what_is_usual(self, make_report: MakeReport) -> None:
        """Where a check is read by the range of retrained networks; older reports have none."""
        report = make_report()
        report["judgement"]["checks"][0]["usual"] = [-0.061, 0.058]
        del report["judgement"]["checks"][1]["usual"]
        assert render_html(report).count("usual: -0.061 to +0.058") == 1
        assert render_html(report).count("usual:") == 1

    def test_a_terminal_gets_two_more_lines(self, make_report: MakeReport, figures: dict[str, Any]) -> None:
        """The calibrated attack with its range, and the most memorised tenth."""
        report = make_report()
        before = render_text(report).splitlines()
        report["figures"] = figures
        after = render_text(report).splitlines()
        assert len(after) == len(before) + 2
        assert max(map(len, after)) <= 100
        line = next(line for line in after if line.startswith("Calibrated attack"))
        assert re.findall(r"[\w.]+ \[[\d.]+, [\d.]+\]", line)[2] == "range [0.440, 0.560]"
