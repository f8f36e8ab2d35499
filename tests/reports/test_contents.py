from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from app.jobs.policies import Policy, Thresholds
from app.reports.contents import judged_again, limits_of
from app.reports.verdict import Verdict

MakeFigures = Callable[..., dict[str, Any]]
MakeReport = Callable[..., dict[str, Any]]


def test_is_plain_data(make_report: MakeReport) -> None:
    """The report is what its JSON says: no tuples, enums or dataclasses are left in it."""
    report = make_report()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert type(report["judgement"]["verdict"]) is str
    assert type(report["judgement"]["checks"][0]["outcome"]) is str


def test_has_every_part(make_report: MakeReport) -> None:
    """The parts of the documented layout, and no others."""
    assert set(make_report()) == {
        *("report_version", "job", "model", "data", "requests", "policy", "figures", "judgement"),
        *("publication", "environment", "not_covered"),
    }


def test_the_verdict_can_be_derived_again(make_report: MakeReport) -> None:
    """From the report's own figures and policy, and an edited verdict shows by not matching."""
    report = make_report(Policy(thresholds=Thresholds(forget_margin=0.2)), forget=(0.1, 0.02, 1e-5))
    again = judged_again(json.loads(json.dumps(report)))
    assert again.verdict is Verdict.PASS
    assert again.sentence == report["judgement"]["sentence"]
    assert list(again.reasons) == report["judgement"]["reasons"]
    report["figures"]["differences"]["reference"]["forget"]["low90"] = -0.5
    assert judged_again(report).verdict is Verdict.INCONCLUSIVE


def test_a_report_from_before_there_were_budgets_can_be_judged(make_report: MakeReport) -> None:
    """It says whether a reference was wanted, and is signed as it is."""
    report = make_report(Policy(thresholds=Thresholds(forget_margin=0.2)), forget=(0.1, 0.02, 1e-5))
    assert report["policy"].pop("audit_budget") == 0
    report["policy"]["reference"] = True
    assert judged_again(report).verdict is Verdict.PASS


def test_a_report_without_a_policy_cannot_be_judged(make_report: MakeReport) -> None:
    """A policy that was tampered with is an error and not a verdict."""
    report = make_report()
    report["policy"]["thresholds"]["auc_margin"] = 7
    with pytest.raises(ValidationError, match="auc_margin"):
        judged_again(report)


def test_says_what_it_does_not_cover(make_report: MakeReport) -> None:
    """The general limits, whether there was a reference, and the job's own limits."""
    with_reference, without = make_report()["not_covered"], make_report(reference=False)["not_covered"]
    assert with_reference[0].startswith("No test can prove")
    assert any("one of many" in limit for limit in with_reference)
    assert any("nothing to compare with" in limit for limit in without)
    assert any("Traces in its inner layers" in limit for limit in with_reference)
    assert with_reference[-1] == without[-1] == "The holdout was small."


def test_says_where_it_did_look(make_figures: MakeFigures) -> None:
    """Inner layers, coarser weights and training are still limits, but other ones; so are more references."""
    figures = make_figures() | {
        "probe": {"unlearned": {"gap": 0.0}},
        "rounded": {"int8": {"excess": None}},
        "relearning": None,
        "references": {"n": 3},
    }
    limits = limits_of(figures)
    assert (
        "Traces were not looked for in the network's inner layers, beyond a new last layer on top of them; "
        "in weights stored otherwise, beyond 8 and 4 bits; after further training."
    ) in limits
    assert any(limit.startswith("The 3 retrained networks are some of many") for limit in limits)
