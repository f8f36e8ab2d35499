from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import sem, t

from workers.audit.tug_of_war import (
    Accuracies,
    average_gap,
    over_references,
    signed_tug_of_war,
    tug_of_war,
    tug_of_war_mia,
)


def accuracies(retain: float, forget: float, test: float, called: float | None = None) -> Accuracies:
    """From percentages, in the order in which papers print them."""
    return Accuracies(
        retain=retain / 100,
        forget=forget / 100,
        test=test / 100,
        called_non_member=None if called is None else called / 100,
    )


@pytest.mark.parametrize(
    ("network", "reference", "signed", "absolute"),
    [
        (accuracies(98, 80, 73), accuracies(99.956, 100, 75.81), 1.143, 0.762),
        (accuracies(98, 0, 73), accuracies(99.964, 3.3, 74.96), 0.993, 0.929),
        (accuracies(99.96, 99.9, 76), accuracies(99.964, 3.3, 74.96), 0.034, 0.034),
        (accuracies(99.96, 100, 76), accuracies(99.956, 100, 75.81), 1.002, 0.998),
    ],
)
def test_worked_cases(network: Accuracies, reference: Accuracies, signed: float, absolute: float) -> None:
    """Both forms on four worked cases; the first shows the signed one paying for over-forgetting."""
    # By hand for the absolute form: the third case's factors are .99996 * .034 * .9896.
    assert signed_tug_of_war(network, reference) == pytest.approx(signed, abs=6e-4)
    assert tug_of_war(network, reference) == pytest.approx(absolute, abs=6e-4)


def test_the_reference_scores_one() -> None:
    """A network equal to the reference has ToW 1, signed too, and no gap."""
    reference = accuracies(97, 66, 67, 40)
    assert tug_of_war(reference, reference) == signed_tug_of_war(reference, reference) == 1.0
    assert average_gap(reference, reference) == 0.0


def test_average_gap() -> None:
    """The mean of |2|, |-30|, |4| and |-8| points is 11."""
    assert average_gap(accuracies(99, 36, 71, 32), accuracies(97, 66, 67, 40)) == pytest.approx(0.11)


def test_average_gap_needs_the_attack() -> None:
    """Without the attack's share on both networks there is no average over four gaps."""
    assert average_gap(accuracies(99, 36, 71), accuracies(97, 66, 67, 40)) is None
    assert tug_of_war_mia(accuracies(99, 36, 71), accuracies(97, 66, 67, 40)) is None


def test_tug_of_war_mia() -> None:
    """|2|, |4| and |-8| points: .98 * .96 * .92; accuracy on F plays no part."""
    reference = accuracies(97, 66, 67, 40)
    for forget in (0, 36):
        found = tug_of_war_mia(accuracies(99, forget, 71, 32), reference)
        assert found == pytest.approx(0.98 * 0.96 * 0.92, abs=1e-12)


class TestOverReferences:
    REFERENCES = (accuracies(97, 66, 67, 40), accuracies(96, 70, 66, 44), accuracies(98, 69, 68, 41))

    def test_is_the_mean_with_its_t_interval(self) -> None:
        """Over three references, with the mean over the six ordered pairs of them."""
        network = accuracies(99, 36, 71, 32)
        found = over_references(average_gap, {"unlearned": network}, self.REFERENCES)
        assert found is not None
        # (2 + 30 + 4 + 8) / 4, (3 + 34 + 5 + 12) / 4 and (1 + 33 + 3 + 9) / 4 points.
        values = np.array([0.11, 0.135, 0.115])
        low, high = t.interval(0.95, 2, loc=values.mean(), scale=sem(values))
        expected = {"n": 3, "mean": values.mean(), "low": low, "high": high}
        assert found["unlearned"] == {
            name: pytest.approx(value, abs=1e-12) for name, value in expected.items()
        }
        # Pairs: (1 + 4 + 1 + 4) / 4, (1 + 3 + 1 + 1) / 4, (2 + 1 + 2 + 3) / 4 points, each twice.
        assert found["references"] == pytest.approx((2.5 + 1.5 + 2.0) / 300, abs=1e-12)

    def test_one_reference_and_none(self) -> None:
        """With one there is no interval and nothing to compare it with; without any no score."""
        reference = self.REFERENCES[0]
        found = over_references(tug_of_war, {"unlearned": reference}, [reference])
        assert found == {"unlearned": {"n": 1, "mean": 1.0, "low": None, "high": None}, "references": None}
        assert over_references(tug_of_war, {"unlearned": reference}, []) is None

    def test_a_score_that_could_not_be_taken(self) -> None:
        """Without the attack's share there is no score that needs it."""
        assert over_references(tug_of_war_mia, {"unlearned": accuracies(9, 9, 9)}, self.REFERENCES) is None
