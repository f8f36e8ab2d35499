from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.jobs.policies import Thresholds
from app.reports.verdict import Action, Decision, Verdict, judge, publish_decision

MakeFigures = Callable[..., dict[str, Any]]


def mostly(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nine times out of ten the usual, so that every verdict comes up."""
    return st.integers(0, 9).flatmap(lambda draw: usual if draw else rare)


# A difference, the half-width of its 90% interval, and a p that may contradict them: rules must hold anyway.
measured = st.tuples(
    mostly(st.floats(-0.03, 0.03), st.floats(-1, 1)),
    mostly(st.floats(0.001, 0.02), st.floats(0.001, 0.5)),
    st.floats(0, 0.001) | st.floats(0, 1),
)
spoilt = st.fixed_dictionaries(
    {
        **dict.fromkeys(["membership", "forget", "retain", "test"], mostly(measured, st.none() | measured)),
        **dict.fromkeys(["to_original", "reference_utility"], mostly(measured, st.none())),
        "auc": st.tuples(st.floats(0, 1), st.floats(0.001, 0.1), st.floats(0, 1)),
        "original_auc": st.tuples(st.floats(0.5, 1), st.floats(0.001, 0.1), st.floats(0, 1)),
        "exchangeable": st.booleans(),
        "forget_rows": mostly(st.sampled_from([800, 63, 1]), st.just(0)),
        "holdout_rows": mostly(st.just(900), st.just(0)),
        "class_distance": mostly(st.floats(0, 0.1), st.none() | st.floats(0, 1)),
        "not_finite": mostly(st.just(0), st.just(3)),
    }
)
many = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the fixture only holds a function


def decide(
    figures: dict[str, Any],
    *,
    publish_when: Literal["passed", "not_failed", "approved"] = "not_failed",
    exact: bool = False,
    last_rung: bool = False,
    prefer_exact: bool = False,
) -> Decision:
    return publish_decision(
        judge(figures, Thresholds()),
        figures,
        publish_when=publish_when,
        exact=exact,
        last_rung=last_rung,
        prefer_exact=prefer_exact,
    )


class TestJudge:
    def test_pass(self, make_figures: MakeFigures) -> None:
        """Every interval inside its margin, a reference, and an attack that detects the original."""
        judgement = judge(make_figures(), Thresholds())
        assert judgement.verdict is Verdict.PASS
        assert judgement.decides_at is None
        assert "behaves like one that was trained without the 800 deleted rows" in judgement.sentence
        assert len(judgement.reasons) == 4

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("membership", 0.2, "still be recognised"),
            ("membership", -0.2, "stand out"),
            ("forget", 0.2, "right on them more often"),
            ("forget", -0.2, "wrong on them more often"),
            ("retain", -0.2, "remaining rows"),
            ("test", -0.2, "new rows"),
        ],
    )
    def test_fail(self, make_figures: MakeFigures, name: str, value: float, words: str) -> None:
        """One figure beyond its margin and significant fails, and the sentence says what it means."""
        judgement = judge(make_figures(**{name: (value, 0.02, 1e-6)}), Thresholds())
        assert judgement.verdict is Verdict.FAIL
        assert words in judgement.sentence
        assert len(judgement.reasons) == 1
        assert "beyond" in judgement.reasons[0]

    def test_fail_without_a_reference(self, make_figures: MakeFigures) -> None:
        """An attack that recognises F is enough for a fail; nothing else is needed for comparison."""
        judgement = judge(make_figures(reference=False, auc=(0.8, 0.03, 1e-9)), Thresholds())
        assert judgement.verdict is Verdict.FAIL

    def test_holm_guards_against_many_checks(self, make_figures: MakeFigures) -> None:
        """p = .004 alone would be significant at .01, as one of four it is not."""
        judgement = judge(make_figures(forget=(0.2, 0.1, 0.004)), Thresholds())
        assert judgement.verdict is Verdict.INCONCLUSIVE

    def test_margins_come_from_the_policy(self, make_figures: MakeFigures) -> None:
        """The same figures fail under a narrow margin and pass under a wide one."""
        figures = make_figures(forget=(0.08, 0.01, 1e-6))
        assert judge(figures, Thresholds(forget_margin=0.05)).verdict is Verdict.FAIL
        assert judge(figures, Thresholds(forget_margin=0.1)).verdict is Verdict.PASS

    def test_inconclusive_says_how_many_rows_would_decide(self, make_figures: MakeFigures) -> None:
        """The largest of the numbers that the open checks on F need."""
        figures = make_figures(forget=(0.0, 0.10, 0.9), membership=(0.0, 0.15, 0.9))
        judgement = judge(figures, Thresholds())
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert judgement.decides_at == pytest.approx(800 * (3 * 2.926 / 1.6449) ** 2, rel=1e-3)
        assert f"about {judgement.decides_at:,} rows" in judgement.sentence
        assert len(judgement.reasons) == 2

    def test_inconclusive_without_a_reference(self, make_figures: MakeFigures) -> None:
        """Nothing found and nothing to compare with: no number of rows would make it a pass."""
        judgement = judge(make_figures(reference=False), Thresholds())
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert judgement.decides_at is None
        assert "no network retrained" in judgement.sentence

    def test_inconclusive_without_power(self, make_figures: MakeFigures) -> None:
        """An attack that does not detect the original cannot clear the result."""
        judgement = judge(make_figures(original_auc=(0.52, 0.03, 0.3)), Thresholds())
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert "even in the original" in judgement.sentence

    def test_inconclusive_in_usefulness_only(self, make_figures: MakeFigures) -> None:
        """If only accuracy on R or T is open, the sentence does not put forgetting in doubt."""
        judgement = judge(make_figures(test=(-0.01, 0.03, 0.4)), Thresholds())
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert judgement.decides_at is None
        assert "cannot tell whether it is still as accurate" in judgement.sentence

    @pytest.mark.parametrize(
        ("spoilt", "reason"),
        [
            ({"forget_rows": 0}, "no forget rows"),
            ({"holdout_rows": 0}, "no held-out rows"),
            ({"class_distance": 0.11}, "distance 0.11, where the policy accepts 0.10"),
            ({"class_distance": None}, "not known how the classes"),
            ({"not_finite": 1}, "unlearned network gives infinite or undefined outputs on 1 row."),
            ({"membership": None}, "no figure for the attack's AUC"),
            ({"forget": None}, "no figure for accuracy on the forget rows"),
            ({"test": None}, "no figure for accuracy on the test rows"),
        ],
    )
    def test_not_valid(self, make_figures: MakeFigures, spoilt: dict[str, Any], reason: str) -> None:
        """Figures that support no verdict get none, even where another check would fail."""
        judgement = judge(make_figures(**{"retain": (-0.3, 0.01, 1e-9), **spoilt}), Thresholds())
        assert judgement.verdict is Verdict.NOT_VALID
        assert any(reason in given for given in judgement.reasons)
        assert "says nothing" in judgement.sentence

    @pytest.mark.parametrize("figures", [{}, {"sets": {}}, {"sets": None, "holdout": 3, "differences": []}])
    def test_figures_of_another_layout_are_not_valid(self, figures: dict[str, Any]) -> None:
        """Whatever is handed in as figures is judged, at worst as not valid."""
        assert judge(figures, Thresholds()).verdict is Verdict.NOT_VALID

    def test_can_be_derived_again_from_json(self, make_figures: MakeFigures) -> None:
        """Figures that went through JSON give the same judgement."""
        figures = make_figures(forget=(0.06, 0.04, 0.03))
        assert judge(json.loads(json.dumps(figures)), Thresholds()) == judge(figures, Thresholds())

    @given(spoilt)
    @many
    def test_never_passes_without_a_reference(
        self, make_figures: MakeFigures, spoilt: dict[str, Any]
    ) -> None:
        """No figures whatever pass if nothing was retrained for comparison."""
        assert judge(make_figures(**spoilt, reference=False), Thresholds()).verdict is not Verdict.PASS

    @given(
        spoilt, st.booleans(), st.sampled_from(["membership", "forget", "retain", "test"]), st.floats(0, 0.5)
    )
    @many
    def test_worse_figures_never_lift_a_fail(
        self,
        make_figures: MakeFigures,
        spoilt: dict[str, Any],
        reference: bool,
        name: str,
        worse: float,
    ) -> None:
        """Moving any decisive figure further from where it should be leaves a failed audit failed."""
        before = judge(make_figures(**spoilt, reference=reference), Thresholds())
        value, half, p = spoilt[name] or (0.0, 0.01, 1.0)
        away = -1 if name in ("retain", "test") or value < 0 else 1
        changed = {**spoilt, name: spoilt[name] and (value + away * worse, half, p * (1 - worse))}
        after = judge(make_figures(**changed, reference=reference), Thresholds())
        if before.verdict is Verdict.FAIL:
            assert after.verdict is Verdict.FAIL

    @given(spoilt)
    @many
    def test_passes_only_what_is_inside_every_margin(
        self, make_figures: MakeFigures, spoilt: dict[str, Any]
    ) -> None:
        """Whatever passes has every decisive interval inside its margin and an attack with power."""
        figures = make_figures(**spoilt)
        if judge(figures, Thresholds()).verdict is Verdict.PASS:
            found = figures["differences"]["reference"]
            assert max(abs(found["membership"][end]) for end in ("low90", "high90")) < 0.05
            assert max(abs(found["forget"][end]) for end in ("low90", "high90")) < 0.05
            assert min(found["retain"]["low90"], found["test"]["low90"]) > -0.02
            assert figures["membership"]["original"]["low"] > 0.5


FAILS = {"membership": (0.3, 0.02, 1e-9)}
OPEN = {"membership": (0.0, 0.2, 0.9)}
BLIND = {**OPEN, "original_auc": (0.52, 0.03, 0.3)}
INVALID = {"class_distance": 0.5}
USELESS = {"to_original": (-0.2, 0.01, 1e-9)}


class TestPublishDecision:
    @pytest.mark.parametrize(
        ("publish_when", "spoilt", "action"),
        [
            ("passed", {}, Action.PUBLISH),
            ("passed", OPEN, Action.REJECT),
            ("passed", FAILS, Action.REJECT),
            ("passed", INVALID, Action.REJECT),
            ("not_failed", {}, Action.PUBLISH),
            ("not_failed", OPEN, Action.PUBLISH),
            ("not_failed", BLIND, Action.REJECT),
            ("not_failed", FAILS, Action.REJECT),
            ("not_failed", INVALID, Action.REJECT),
            ("approved", {}, Action.AWAIT_APPROVAL),
            ("approved", OPEN, Action.AWAIT_APPROVAL),
            ("approved", BLIND, Action.AWAIT_APPROVAL),
            ("approved", FAILS, Action.REJECT),
            ("approved", INVALID, Action.REJECT),
        ],
    )
    def test_approximate(
        self, make_figures: MakeFigures, publish_when: Any, spoilt: dict[str, Any], action: Action
    ) -> None:
        """Every rule against every kind of verdict, with a later method still to come."""
        decision = decide(make_figures(**spoilt), publish_when=publish_when)
        assert decision.action is action
        assert decision.publish is (action is Action.PUBLISH)
        assert (decision.network, decision.rule) == ("unlearned", publish_when)
        assert ("next method" in decision.reason) is (action is Action.REJECT)

    def test_not_failed_without_a_reference_needs_power_too(self, make_figures: MakeFigures) -> None:
        """Nothing found counts only if the same attack finds the original."""
        assert decide(make_figures(reference=False)).action is Action.PUBLISH
        blind = make_figures(reference=False, original_auc=(0.52, 0.03, 0.3))
        assert decide(blind).action is Action.REJECT

    def test_the_last_method_leaves_it_to_a_person(self, make_figures: MakeFigures) -> None:
        """With no method left a rejection says so, and an approver sees even a failure."""
        rejected = decide(make_figures(**FAILS), last_rung=True)
        assert rejected.action is Action.REJECT
        assert "a person has to decide" in rejected.reason
        asked = decide(make_figures(**FAILS), publish_when="approved", last_rung=True)
        assert asked.action is Action.AWAIT_APPROVAL

    @pytest.mark.parametrize("spoilt", [{}, OPEN, FAILS, INVALID])
    def test_exact_publishes_whatever_the_attack_says(
        self, make_figures: MakeFigures, spoilt: dict[str, Any]
    ) -> None:
        """A network trained without the rows has forgotten them, and the reason says why."""
        decision = decide(make_figures(**spoilt), publish_when="passed", exact=True)
        assert (decision.action, decision.rule) == (Action.PUBLISH, "exact")
        assert "by construction" in decision.reason

    def test_exact_needs_utility(self, make_figures: MakeFigures) -> None:
        """A retrained network that lost accuracy goes on to the next method, or to a person at the end."""
        useless = make_figures(reference=False, test=(-0.2, 0.01, 1e-9))
        assert decide(useless, exact=True).action is Action.REJECT
        assert decide(useless, exact=True, last_rung=True).action is Action.AWAIT_APPROVAL
        unmeasured = make_figures(reference=False, test=None)
        assert decide(unmeasured, exact=True).action is Action.REJECT

    def test_exact_awaits_approval_where_the_policy_asks_for_it(self, make_figures: MakeFigures) -> None:
        """`approved` means a named person, for an exact method too."""
        decision = decide(make_figures(), publish_when="approved", exact=True)
        assert decision.action is Action.AWAIT_APPROVAL

    @pytest.mark.parametrize("spoilt", [{}, OPEN, FAILS, INVALID])
    def test_prefers_the_reference(self, make_figures: MakeFigures, spoilt: dict[str, Any]) -> None:
        """The exact network made to judge the approximate one is published instead of it."""
        decision = decide(make_figures(**spoilt), publish_when="passed", prefer_exact=True)
        assert (decision.action, decision.network) == (Action.PUBLISH, "reference")

    def test_prefers_only_a_useful_reference(self, make_figures: MakeFigures) -> None:
        """A reference that lost accuracy, or none at all, leaves the ordinary rule in force."""
        useless = make_figures(reference_utility=(-0.2, 0.01, 1e-9))
        assert decide(useless, prefer_exact=True).network == "unlearned"
        assert decide(make_figures(reference=False), prefer_exact=True).network == "unlearned"

    @given(
        spoilt,
        st.booleans(),
        st.sampled_from(["passed", "not_failed", "approved"]),
        st.tuples(st.booleans(), st.booleans(), st.booleans()),
    )
    @many
    def test_publishes_nothing_that_failed_unless_exact(
        self,
        make_figures: MakeFigures,
        spoilt: dict[str, Any],
        reference: bool,
        publish_when: Any,
        flags: tuple[bool, bool, bool],
    ) -> None:
        """What failed or is not valid stays unpublished, and `approved` never publishes by itself."""
        figures = make_figures(**spoilt, reference=reference)
        exact, last_rung, prefer_exact = flags
        decision = decide(
            figures,
            publish_when=publish_when,
            exact=exact,
            last_rung=last_rung,
            prefer_exact=prefer_exact,
        )
        verdict = judge(figures, Thresholds()).verdict
        if decision.publish:
            assert publish_when != "approved"
            assert exact or decision.network == "reference" or verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
