"""Scores that sum up accuracies against the retrained reference; orientation for readers, never a verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Accuracies:
    """Shares of right answers on F, R and T, and the confidence attack's share of F called non-members."""

    forget: float
    retain: float
    test: float
    called_non_member: float | None = None


def tug_of_war(network: Accuracies, reference: Accuracies) -> float:
    """ToW = (1 - |dFA|) (1 - |dRA|) (1 - |dTA|), in [0, 1]; 1 is the reference's own (Zhao et al. 2024)."""
    return (
        (1 - abs(network.forget - reference.forget))
        * (1 - abs(network.retain - reference.retain))
        * (1 - abs(network.test - reference.test))
    )


def signed_tug_of_war(network: Accuracies, reference: Accuracies) -> float:
    """ToW without the absolute values, as the released code of Sharp MinMax computed it.

    To be read with care: it rewards forgetting more than the reference and may exceed 1.
    """
    return (
        (1 - (network.forget - reference.forget))
        * (1 - (reference.retain - network.retain))
        * (1 - (reference.test - network.test))
    )


def average_gap(network: Accuracies, reference: Accuracies) -> float | None:
    """Avg. Gap (Fan et al. 2024): the mean distance from the reference in FA, RA, TA and the attack's share.

    None where the attack could not be run on both.
    """
    if network.called_non_member is None or reference.called_non_member is None:
        return None
    gaps = (
        network.forget - reference.forget,
        network.retain - reference.retain,
        network.test - reference.test,
        network.called_non_member - reference.called_non_member,
    )
    return sum(abs(gap) for gap in gaps) / len(gaps)
