"""Scores that sum up accuracies against the retrained reference; orientation for readers, never a verdict.

Of the figures of issue 6 these are ToW (absolute, signed, normalised), ToW-MIA and Avg. Gap. With K
references each is taken against every one of them, and beside it stands what these make of each other:

    {"tug_of_war" | "tug_of_war_mia" | "average_gap": None | {NETWORK:
        {"n": K, "mean", "low", "high"}, "references": None | mean}}      t-interval; None without the share
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from workers.audit.comparison import interval


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


def tug_of_war_mia(network: Accuracies, reference: Accuracies) -> float | None:
    """ToW-MIA (Zhao et al. 2024): ToW with the confidence attack's share in the place of accuracy on F.

    None where the attack could not be run on both.
    """
    if network.called_non_member is None or reference.called_non_member is None:
        return None
    return (
        (1 - abs(network.called_non_member - reference.called_non_member))
        * (1 - abs(network.retain - reference.retain))
        * (1 - abs(network.test - reference.test))
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


def over_references(
    score: Callable[[Accuracies, Accuracies], float | None],
    networks: Mapping[str, Accuracies],
    references: Sequence[Accuracies],
) -> dict[str, Any] | None:
    """One of the scores above against each of K references, in the layout above.

    A reference scored against the others is what a network retrained once more would get, about; a score of a
    single pair hides that two retrained networks do not agree either. The interval is over references alone.
    """
    scored = {name: interval([score(of, each) for each in references]) for name, of in networks.items()}
    if not references or None in scored.values():
        return None
    among = [score(one, other) for one, other in permutations(references, 2)]
    known = [value for value in among if value is not None]
    return {**scored, "references": float(np.mean(known)) if known else None}
