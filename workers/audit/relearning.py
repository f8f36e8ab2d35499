"""How fast what was forgotten comes back: steps of training on F until it is known as before.

Deep audit, issue 6: "relearning and AIN with both anchors". A network that still holds F relearns it at
once, one that never saw it takes as long as a retrained one, and one that was damaged takes longer. Steps
alone depend on learning rate and batch, so both anchors, trained alike, stand beside them: the original,
which needs none by definition, and the reference.

    {"relearning": {"target": share,                                      (1 - alpha) x the original's
        "budget": steps,                                                  the last step measured
        "steps": {"original" | "unlearned": steps | None,                 None: not within the budget
                  "references": [steps | None]},
        "ain": None | ratio, "ain_at_least": None | ratio}}

AIN, the anamnesis index (Chundawat et al. 2023, IEEE TIFS), is the unlearned network's steps over the
reference's: 1 is the ideal, below it something was left, above it too much was taken. Over several
references it is their median. Where the unlearned network did not get there, only a lower bound is known.
Where most references did not, or needed no step, there is no index; published code adds a hundredth to both
instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Any

import numpy as np

from workers.audit.outputs import FloatArray, IntArray

ALPHA = 0.05


@dataclass(frozen=True)
class Curve:
    """Accuracy on F while a network is trained on it.

    Attributes:
        steps: int64 [S], ascending from 0, at which it was measured; S at least 1.
        accuracies: float64 [S], shares; the first is that of the network as it was.
    """

    steps: IntArray
    accuracies: FloatArray


def steps_to_reach(curve: Curve, target: float) -> int | None:
    """The first step at which the accuracy is at least `target`; None if at none. NaN reaches nothing.

    Not interpolated: between two measurements nothing is known.
    """
    reached = np.flatnonzero(curve.accuracies >= target)
    return int(curve.steps[reached[0]]) if len(reached) else None


def relearning_figures(
    *, original: Curve, unlearned: Curve, references: Sequence[Curve], alpha: float = ALPHA
) -> dict[str, Any]:
    """Steps of each network and the index, in the layout above.

    Args:
        references: of networks that never saw F; without one there are steps and no index.
        alpha: how far below the original's accuracy, as a share of it, counts as known again.

    Raises:
        ValueError: the networks were not measured at the same steps.
    """
    if any(not np.array_equal(curve.steps, original.steps) for curve in (unlearned, *references)):
        raise ValueError("networks relearn for the same steps, measured alike")
    target, budget = (1 - alpha) * float(original.accuracies[0]), int(original.steps[-1])
    own = steps_to_reach(unlearned, target)
    others = [steps_to_reach(curve, target) for curve in references]
    usual = _median(others)
    return {
        "target": target,
        "budget": budget,
        "steps": {
            "original": steps_to_reach(original, target),
            "unlearned": own,
            "references": others,
        },
        "ain": own / usual if usual and own is not None else None,
        "ain_at_least": budget / usual if usual and own is None else None,
    }


def _median(steps: Sequence[int | None]) -> float | None:
    """The upper median, None being more than any number; so an observed number of steps or None."""
    if not steps:
        return None
    middle = median_high([np.inf if each is None else each for each in steps])
    return None if np.isinf(middle) else float(middle)
