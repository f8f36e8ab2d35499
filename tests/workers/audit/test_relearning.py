from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.audit.relearning import Curve, relearning_figures, steps_to_reach


def curve(*accuracies: float, every: int = 5) -> Curve:
    return Curve(np.arange(len(accuracies)) * every, np.array(accuracies))


def figures(unlearned: Curve, *references: Curve) -> dict[str, Any]:
    """Against an original that has all of F right, with the target at 95%."""
    return relearning_figures(original=curve(1.0, 1.0, 1.0, 1.0), unlearned=unlearned, references=references)


class TestStepsToReach:
    @pytest.mark.parametrize(
        ("accuracies", "expected"),
        [
            ((0.95, 0.2, 1.0), 0),
            ((0.1, 0.949, 0.95, 1.0), 10),
            ((0.1, 0.96, 0.4), 5),  # the first time counts, also where it falls again
            ((0.1, 0.5, 0.9), None),
            ((np.nan, np.nan), None),
        ],
    )
    def test_is_the_first_step(self, accuracies: tuple[float, ...], expected: int | None) -> None:
        """At which the target is reached; None where it never is."""
        assert steps_to_reach(curve(*accuracies), 0.95) == expected

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
    def test_a_higher_target_takes_no_fewer_steps(self, values: list[float], one: float, two: float) -> None:
        """Never reached counts as longest."""
        low, high = (steps_to_reach(curve(*values), target) for target in sorted((one, two)))
        assert high is None or (low is not None and low <= high)


class TestRelearningFigures:
    def test_hand_worked(self) -> None:
        """The reference takes 10 steps and the unlearned network 5: an index of one half."""
        found = figures(curve(0.9, 0.97, 1.0, 1.0), curve(0.8, 0.9, 0.96, 1.0))
        assert found == {
            "target": 0.95,
            "budget": 15,
            "steps": {"original": 0, "unlearned": 5, "references": [10]},
            "ain": 0.5,
            "ain_at_least": None,
        }

    def test_what_was_never_forgotten_has_index_zero(self) -> None:
        """The original itself needs no step."""
        assert figures(curve(1.0, 1.0, 1.0, 1.0), curve(0.8, 0.9, 0.96, 1.0))["ain"] == 0.0

    def test_beyond_the_budget_only_a_bound_is_known(self) -> None:
        """15 steps were not enough where the reference took 5: at least 3."""
        found = figures(curve(0.1, 0.2, 0.3, 0.4), curve(0.8, 0.96, 1.0, 1.0))
        assert (found["ain"], found["ain_at_least"], found["steps"]["unlearned"]) == (None, 3.0, None)

    @pytest.mark.parametrize("reference", [curve(0.1, 0.2, 0.3, 0.4), curve(0.96, 1.0, 1.0, 1.0)])
    def test_a_reference_that_gives_no_unit(self, reference: Curve) -> None:
        """One that does not get there, or is there already, gives no index; nothing is added to make one."""
        found = figures(curve(0.9, 0.97, 1.0, 1.0), reference)
        assert (found["ain"], found["ain_at_least"]) == (None, None)

    def test_several_references_count_by_their_median(self) -> None:
        """Of 5, 10 and never it is 10; of none there is no index."""
        fast, slow, never = curve(0.1, 0.96, 1, 1), curve(0.1, 0.2, 0.96, 1), curve(0.1, 0.2, 0.3, 0.4)
        assert figures(slow, never, fast, slow)["ain"] == 1.0
        assert figures(slow, never, fast)["ain"] is None
        assert figures(slow)["ain"] is None

    def test_curves_must_be_measured_alike(self) -> None:
        """At the same steps."""
        with pytest.raises(ValueError, match="same steps"):
            figures(curve(0.1, 0.2, 0.3, 1.0, every=2), curve(0.1, 0.2, 0.3, 1.0))
