from __future__ import annotations

import pytest

from workers.audit.tug_of_war import Accuracies, average_gap, signed_tug_of_war, tug_of_war


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
