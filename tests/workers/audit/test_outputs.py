from __future__ import annotations

import numpy as np
import pytest

from workers.audit.outputs import FloatArray, IntArray, Outputs


@pytest.mark.parametrize(
    ("logits", "labels", "fault"),
    [
        (np.zeros((2, 3), dtype=np.float32), np.zeros(2, dtype=np.int64), "float64"),
        (np.zeros((2, 1)), np.zeros(2, dtype=np.int64), "C >= 2"),
        (np.zeros(4), np.zeros(4, dtype=np.int64), "C >= 2"),
        (np.zeros((2, 3)), np.zeros(3, dtype=np.int64), "int64"),
        (np.zeros((2, 3)), np.zeros(2, dtype=np.int32), "int64"),
        (np.zeros((2, 3)), np.array([0, 3]), "outside"),
        (np.zeros((2, 3)), np.array([-1, 2]), "outside"),
    ],
)
def test_refuses_what_does_not_fit(logits: FloatArray, labels: IntArray, fault: str) -> None:
    """Wrong types, shapes and labels are named when the outputs are made, not in a figure later."""
    with pytest.raises(ValueError, match=fault):
        Outputs(logits, labels)


def test_a_row_without_finite_logits_is_never_right() -> None:
    """NaN and infinity count as misclassified, whatever the largest entry is."""
    logits = np.array([[9.0, 0.0], [np.inf, 0.0], [np.nan, 0.0]])
    outputs = Outputs(logits, np.array([0, 0, 0]))
    assert outputs.correct.tolist() == [True, False, False]
    assert outputs.finite.tolist() == [True, False, False]


def test_take_keeps_rows_and_labels_together() -> None:
    """Chosen rows come with their own labels, in the order asked for."""
    outputs = Outputs(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]))
    taken = outputs.take(np.array([2, 1]))
    assert taken.logits.tolist() == [[4.0, 5.0], [2.0, 3.0]]
    assert taken.labels.tolist() == [0, 1]
