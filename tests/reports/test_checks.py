from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.policies import Thresholds
from app.reports.checks import Check, Outcome, checks_of, holm
from app.reports.questions import attack_has_power, figure
from app.reports.wording import describe

MakeFigures = Callable[..., dict[str, Any]]
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def check_of(figures: dict[str, Any], measure: str, against: str = "reference") -> Check:
    found = [c for c in checks_of(figures, Thresholds()) if (c.measure, c.against) == (measure, against)]
    return found[0]


class TestHolm:
    def test_hand_worked(self) -> None:
        """.01, .04, .03 and .005 become .03, .06, .06 and .02."""
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])

    @given(p_values, st.floats(0.001, 0.5))
    def test_rejects_what_the_step_down_procedure_rejects(self, ps: list[float], level: float) -> None:
        """An adjusted p is below the level exactly where Holm's sequence of tests has not stopped yet."""
        rejected, order = set(), sorted(range(len(ps)), key=ps.__getitem__)
        for place, i in enumerate(order):
            if (len(ps) - place) * ps[i] >= level:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(holm(ps)) if p < level} == rejected

    def test_does_not_depend_on_the_order(self) -> None:
        """Each p keeps its adjusted value wherever it stands."""
        ps = [0.001, 0.2, 0.013, 0.02]
        expected = dict(zip(ps, holm(ps), strict=True))
        for order in permutations(ps):
            assert dict(zip(order, holm(order), strict=True)) == expected


class TestChecksOf:
    def test_with_a_reference(self, make_figures: MakeFigures) -> None:
        """Four checks against it decide; accuracy against the original is reported, the reference's too."""
        checks = checks_of(make_figures(), Thresholds())
        decisive = [(c.measure, c.network, c.against) for c in checks if c.decisive]
        assert decisive == [(m, "unlearned", "reference") for m in ("membership", "forget", "retain", "test")]
        reported = [(c.measure, c.network, c.against) for c in checks if not c.decisive]
        assert reported == [
            (m, n, "original") for n in ("unlearned", "reference") for m in ("retain", "test")
        ]

    def test_without_a_reference(self, make_figures: MakeFigures) -> None:
        """The attack is compared with guessing and accuracy with the original."""
        checks = checks_of(make_figures(reference=False, auc=(0.58, 0.03, 0.004)), Thresholds())
        assert [(c.measure, c.against, c.decisive) for c in checks] == [
            ("membership", "chance", True),
            ("retain", "original", True),
            ("test", "original", True),
        ]
        assert checks[0].difference == pytest.approx(0.08)
        assert (checks[0].low90, checks[0].high90) == pytest.approx((0.05, 0.11))

    def test_less_accuracy_is_the_only_loss(self, make_figures: MakeFigures) -> None:
        """A gain in accuracy is no fault, and a loss is tested one-sidedly."""
        gain = check_of(make_figures(test=(0.3, 0.01, 1e-9)), "test")
        loss = check_of(make_figures(test=(-0.3, 0.01, 1e-9)), "test")
        assert (gain.p, gain.outcome) == (1.0, Outcome.WITHIN)
        assert (loss.p, loss.outcome) == (5e-10, Outcome.BEYOND)

    @pytest.mark.parametrize("value", [0.2, -0.2])
    def test_both_directions_count_on_forget_rows(self, make_figures: MakeFigures, value: float) -> None:
        """Too right and too wrong on F are both unlike a network that never saw it."""
        assert check_of(make_figures(forget=(value, 0.02, 1e-6)), "forget").outcome is Outcome.BEYOND

    @pytest.mark.parametrize(("exchangeable", "outcome"), [(True, Outcome.BEYOND), (False, Outcome.WITHIN)])
    def test_an_auc_below_chance_counts_only_if_rows_are_comparable(
        self, make_figures: MakeFigures, exchangeable: bool, outcome: Outcome
    ) -> None:
        """Without a reference, F looking unseen is a fault only where H holds rows of the same people."""
        figures = make_figures(reference=False, auc=(0.3, 0.03, 1e-8), exchangeable=exchangeable)
        assert check_of(figures, "membership", "chance").outcome is outcome

    def test_significant_but_small_is_not_beyond(self, make_figures: MakeFigures) -> None:
        """A difference inside the margin passes, however sure it is."""
        assert check_of(make_figures(forget=(0.03, 0.01, 1e-9)), "forget").outcome is Outcome.WITHIN

    def test_large_but_uncertain_is_undecided(self, make_figures: MakeFigures) -> None:
        """A difference beyond the margin with p above the adjusted level is neither."""
        check = check_of(make_figures(forget=(0.2, 0.12, 0.004)), "forget")
        assert check.adjusted_p == pytest.approx(0.016)
        assert check.outcome is Outcome.UNDECIDED

    @pytest.mark.parametrize("missing", ["membership", "forget", "retain", "test"])
    def test_what_was_not_measured_is_left_out(self, make_figures: MakeFigures, missing: str) -> None:
        """A missing figure makes no check, and the others stay."""
        checks = [c for c in checks_of(make_figures(**{missing: None}), Thresholds()) if c.decisive]
        assert len(checks) == 3
        assert missing not in {c.measure for c in checks}


class TestRowsToDecide:
    def test_is_the_textbook_size(self, make_figures: MakeFigures) -> None:
        """For an AUC of equal groups under the null, a margin of .05 takes 572 rows a side."""
        m = 100
        half = 1.6448536 * math.sqrt(2 * m / (12 * m * m))
        figures = make_figures(membership=(0.0, half, 0.9), forget_rows=m)
        assert check_of(figures, "membership").rows_to_decide == pytest.approx(572, abs=2)

    def test_one_sided_checks_need_fewer(self, make_figures: MakeFigures) -> None:
        """Where only a loss counts, four times out of five takes (1.645 + .842) standard errors."""
        check = check_of(make_figures(test=(0.0, 0.05, 0.9)), "test")
        assert check.rows_to_decide == pytest.approx(1000 * (0.05 / 0.02 * 2.4865 / 1.6449) ** 2, rel=1e-3)

    def test_does_not_follow_a_chance_difference(self, make_figures: MakeFigures) -> None:
        """A difference close to the margin, or just past it, asks for no more rows than none at all."""
        needed = {
            check_of(make_figures(forget=(value, 0.09, 0.7)), "forget").rows_to_decide
            for value in (0.0, 0.03, 0.0499, 0.07)
        }
        assert len(needed) == 1

    def test_nothing_to_say_where_rows_are_not_what_is_missing(self, make_figures: MakeFigures) -> None:
        """A settled check needs none, nor one that only its difference keeps open."""
        assert check_of(make_figures(), "forget").rows_to_decide is None
        assert check_of(make_figures(forget=(0.049, 0.01, 0.1)), "forget").rows_to_decide is None


def test_figure_finds_or_gives_none() -> None:
    """A path that ends early, or in something that is no mapping, is a missing figure."""
    figures = {"a": {"b": 0.5}, "c": None}
    assert figure(figures, "a", "b") == 0.5
    assert figure(figures, "a", "x") is figure(figures, "c", "b") is figure(figures, "a", "b", "c") is None


@pytest.mark.parametrize(("auc", "power"), [((0.6, 0.05, 0.01), True), ((0.55, 0.05, 0.1), False)])
def test_power_is_the_original_detected(
    make_figures: MakeFigures, auc: tuple[float, float, float], power: bool
) -> None:
    """The attack has power where the lower end of the original's 95% interval is above one half."""
    assert attack_has_power(make_figures(original_auc=auc)) is power


def test_a_gap_is_compared_with_none(make_figures: MakeFigures) -> None:
    """Without a reference a new last layer has no rival; an area has: guessing."""
    gap = {"gap": 0.02, "low90": 0.0, "high90": 0.04, "p": 0.2}
    figures = make_figures(reference=False) | {"probe": {"unlearned": gap}}
    assert "differs from none at all by +2.0 points" in describe(check_of(figures, "probe", "chance"))
    assert "differs from guessing by +0.000" in describe(check_of(figures, "membership", "chance"))
