from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from app.reports.render import render_html, render_text

MakeReport = Callable[..., dict[str, Any]]
VOID = {"meta", "img", "br", "line", "circle"}


class Page(HTMLParser):
    """Tags with attributes, the text shown, and whether every element is closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += f"{data} "

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


class TestHtml:
    def test_tells_the_whole_story(self, make_report: MakeReport) -> None:
        """Verdict, request, figures with intervals, reasons, decision, time, limits and provenance."""
        report = make_report()
        words = Page(render_html(report)).words
        for part in (
            "Passed",
            report["judgement"]["sentence"],
            "2 deletion requests: remove the influence of 800 rows of the data set scans (version 3)",
            "20,000 other rows",
            "70.0%",
            "0.500 [0.476, 0.524]",
            *report["judgement"]["reasons"],
            "Published. The audit passed.",
            "The new version is digits 2.",
            "retraining without these rows took 41.0 s, 12.8 times as long",
            *report["not_covered"],
            "c" * 64,
            "parameters.alpha 0.8",
            "Tug of war 0.930",
        ):
            assert part in words

    def test_loads_nothing_from_anywhere(self, make_report: MakeReport) -> None:
        """No script, link, frame or address outside the page, and a policy that forbids them."""
        source = render_html(
            make_report(), pictures={"margins.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>"}
        )
        page = Page(source)
        assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "base", "form"}
        addresses = [attrs.get(name) for _, attrs in page.tags for name in ("src", "href") if name in attrs]
        assert addresses
        assert all(address is not None and address.startswith("data:") for address in addresses)
        assert "url(" not in source
        assert "@import" not in source
        policies = [attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs]
        assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]

    def test_the_picture_is_an_image(self, make_report: MakeReport) -> None:
        """An SVG goes in as data of an image with a description, so nothing in it can run."""
        svg = "<svg><script>alert(1)</script></svg>"
        source = render_html(make_report(), pictures={"margins.svg": svg})
        assert "alert(1)" not in source
        image = next(attrs for tag, attrs in Page(source).tags if tag == "img")
        kind, _, data = str(image["src"]).partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(data).decode() == svg
        assert image["alt"]

    def test_names_are_escaped(self, make_report: MakeReport) -> None:
        """A model named like markup is shown as text."""
        report = make_report()
        report["model"]["name"] = "<img src=x onerror=alert(1)>"
        page = Page(render_html(report))
        assert "img" not in {tag for tag, _ in page.tags}
        assert "<img src=x onerror=alert(1)>" in page.text

    def test_tables_can_be_read_aloud(self, make_report: MakeReport) -> None:
        """Every table has a caption, every header a scope, and pictures of intervals are hidden."""
        page = Page(render_html(make_report()))
        tags = [tag for tag, _ in page.tags]
        assert tags.count("caption") == tags.count("table") == 2
        assert all(attrs.get("scope") in ("row", "col") for tag, attrs in page.tags if tag == "th")
        assert all(attrs.get("aria-hidden") == "true" for tag, attrs in page.tags if tag == "svg")
        assert page.tags[0] == ("html", {"lang": "en"})

    def test_bars_show_the_intervals(self, make_report: MakeReport) -> None:
        """The AUC's bar runs from the lower to the upper end of its interval, with one half marked."""
        report = make_report(auc=(0.6, 0.05, 0.01))
        lines = [attrs for tag, attrs in Page(render_html(report)).tags if tag == "line"]
        ends = [(attrs["x1"], attrs["x2"]) for attrs in lines if attrs.get("class") == "interval"]
        assert ("58.0", "70.0") in ends  # 4 + 100 * .54 and 4 + 100 * .66
        assert sum(attrs.get("class") == "guessing" for attrs in lines) == 3

    @pytest.mark.parametrize(
        ("spoilt", "shown"),
        [
            ({"reference": False}, "Inconclusive"),
            ({"not_finite": 2}, "Not valid"),
            ({"membership": (0.3, 0.01, 1e-9)}, "Failed"),
        ],
    )
    def test_every_verdict(self, make_report: MakeReport, spoilt: dict[str, Any], shown: str) -> None:
        """Each verdict has its word, and what was not published says what is served."""
        report = make_report(**spoilt)
        words = Page(render_html(report)).words
        assert shown in words
        assert ("still serves version 1" in words) is not report["publication"]["publish"]

    def test_says_which_network_is_published(self, make_report: MakeReport) -> None:
        """The retrained network by name, and nothing where the decision came too late."""
        report = make_report()
        report["publication"]["network"] = "reference"
        assert "Published: the retrained network." in Page(render_html(report)).words
        report["model"]["version_after"] = None
        words = Page(render_html(report)).words
        assert "Not put into use: another version" in words
        assert "still serves version 1" in words

    def test_what_was_not_measured_is_said(self, make_report: MakeReport) -> None:
        """A missing figure reads `not measured`, and there is no column for a missing reference."""
        report = make_report(reference=False)
        report["figures"]["membership"]["unlearned"] = None
        report["figures"]["cost"]["seconds"]["unlearning"] = None
        words = Page(render_html(report)).words
        assert "not measured" in words
        assert "The time was not measured" in words
        assert "Before After" in words
        assert "Retrained" not in words


class TestText:
    def test_fits_a_terminal(self, make_report: MakeReport) -> None:
        """No line is longer than 100 columns, whatever the names."""
        report = make_report()
        report["model"]["name"] = "a-rather-long-name-of-a-model" * 3
        assert max(len(line) for line in render_text(report).splitlines()) <= 100

    def test_shows_the_table(self, make_report: MakeReport) -> None:
        """One line a measure, one column a network, each figure with its interval."""
        text = render_text(make_report())
        header = next(line for line in text.splitlines() if "Before" in line)
        assert header.split() == ["Before", "After", "Retrained"]
        line = next(line for line in text.splitlines() if line.startswith("Attack: AUC"))
        assert re.findall(r"[\d.]+ \[[\d.]+, [\d.]+\]", line) == [
            *("0.900 [0.876, 0.924]", "0.500 [0.476, 0.524]", "0.500 [0.476, 0.524]")
        ]

    @pytest.mark.parametrize(
        ("spoilt", "verdict"),
        [({}, "PASSED"), ({"reference": False}, "INCONCLUSIVE"), ({"forget": (0.3, 0.01, 1e-9)}, "FAILED")],
    )
    def test_says_verdict_rule_and_time(
        self, make_report: MakeReport, spoilt: dict[str, Any], verdict: str
    ) -> None:
        """The verdict with its sentence, the decision with its rule and reason, and the time."""
        report = make_report(**spoilt)
        words = " ".join(render_text(report).split())
        assert f"Verdict: {verdict}. {report['judgement']['sentence']}" in words
        assert f"(rule: not_failed). {report['publication']['reason']}" in words
        assert "Unlearning took 3.2 s" in words

    def test_an_exact_method_is_not_compared_with_itself(self, make_report: MakeReport) -> None:
        """Retraining took what it took."""
        assert "Training again without these rows took 3.2 s." in render_text(make_report(method="retrain"))

    def test_faster_and_slower_than_retraining(self, make_report: MakeReport) -> None:
        """A method slower than retraining is not praised for its speed."""
        report = make_report()
        report["figures"]["cost"]["seconds"]["unlearning"] = 60.0
        assert "took 41.0 s, no longer than that." in " ".join(render_text(report).split())
