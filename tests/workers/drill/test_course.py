from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from workers.answers import Answers
from workers.drill import __main__ as program
from workers.drill import course, recipes
from workers.drill.course import Finding, Plan, examine, plain, run
from workers.drill.expected import TRUTHS, Expectation, Kind, expectation
from workers.drill.stage import Recipe, Stage
from workers.drill.summary import rates, table


@pytest.fixture(scope="module")
def findings(stage: Stage) -> list[Finding]:
    known = Answers()
    return [examine(stage, truth, known) for truth in TRUTHS]


def test_everything_has_an_expectation_with_a_reason() -> None:
    """For every truth, kind and number; only an honest network may be published without a word."""
    kinds: tuple[Kind, ...] = ("canaries", "ordinary")
    for truth, kind, rows in product(TRUTHS, kinds, (1, 50, 500)):
        expected = expectation(truth, kind, rows)
        assert expected.verdicts
        assert expected.reason.endswith(".")
        assert expected.publishable is (truth == "honest_retrain")
        assert ("pass" in expected.verdicts) is (truth == "honest_retrain")


def test_twenty_rows(findings: list[Finding]) -> None:
    """The honest one is not failed and the wrapper is named; nothing else passes or is published."""
    assert [finding.faults for finding in findings] == [()] * len(TRUTHS)
    by_truth = {finding.truth: finding for finding in findings}
    assert by_truth["honest_retrain"].verdict == "inconclusive"
    assert by_truth["untouched_original"].verdict == "fail"
    assert "centred" in by_truth["untouched_original"].beyond
    assert by_truth["untouched_original"].power
    assert "artefact" in by_truth["look_up_table"].beyond
    assert not any(by_truth[truth].published_by for truth in TRUTHS if truth != "honest_retrain")


def test_findings_as_text_and_data(findings: list[Finding]) -> None:
    """A line for each truth, the rates with intervals, and JSON that says the same."""
    text = table(findings)
    assert [line.split()[0] for line in text.splitlines()[1:]] == sorted(TRUTHS)
    assert "WRONG" not in text
    assert "Honest retrains that failed: 0 of 1, 0.0% (95% interval 0.0 to 79.3)." in rates(findings)
    assert "Untouched originals that would be published: 0 of 1." in rates(findings)
    assert json.loads(json.dumps(plain(findings[0])))["truth"] == "honest_retrain"


def test_a_wrong_verdict_is_a_fault(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the original expected to pass, the drill would say so, and what else is wrong with it."""
    hopeful = Expectation(frozenset({"pass"}), "Made up.")
    monkeypatch.setattr(course, "expectation", lambda *_: hopeful)
    finding = examine(stage, "untouched_original", Answers())
    assert finding.faults == ("the verdict is fail, and should be pass",)
    assert "WRONG" in table([finding])


def test_processes_do_not_matter(recipe: Recipe) -> None:
    """Two seeds side by side give what they give one after the other, in their order."""
    quick = replace(recipe, training=replace(recipe.training, epochs=2))
    plan = Plan(("untouched_original",), "ordinary", (5,))
    one, two = (list(run(quick, plan, (0, 1), processes=processes)) for processes in (1, 2))
    assert one == two
    assert [finding.seed for finding in one] == [0, 1]


def test_the_program_ends_with_one_where_something_is_wrong(
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And with nothing where all is as expected; the findings are in the file either way."""
    quick = replace(recipe, training=replace(recipe.training, epochs=2))
    monkeypatch.setattr(recipes, "digits", lambda: quick)
    out = tmp_path / "findings.jsonl"
    given = ["--seeds", "1", "--rows", "5", "--truths", "untouched_original", "--out", str(out)]
    assert program.main(given) == 0
    assert "Every verdict is as expected." in capsys.readouterr().out
    hopeful = Expectation(frozenset({"pass"}), "Made up.")
    monkeypatch.setattr(course, "expectation", lambda *_: hopeful)
    assert program.main(given) == 1
    assert "NOT AS EXPECTED" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 2
