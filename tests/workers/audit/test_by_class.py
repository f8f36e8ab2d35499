from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import confusion_matrix

from workers.audit.by_class import accuracy_by_class
from workers.audit.outputs import Outputs


def test_agrees_with_a_confusion_matrix(make_outputs: Callable[..., Outputs]) -> None:
    """The diagonal over the row sums, with scipy's Wilson interval."""
    outputs = make_outputs(1, sure=1.5)
    table = confusion_matrix(outputs.labels, outputs.logits.argmax(axis=1))
    for found in accuracy_by_class(outputs):
        row = table[found["label"]]
        assert (found["correct"], found["n"]) == (row[found["label"]], row.sum())
        expected = stats.binomtest(found["correct"], found["n"]).proportion_ci(0.95, method="wilson")
        assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_only_classes_that_occur_are_listed() -> None:
    """In order; a row without finite logits counts as wrong; of no rows there is no class."""
    logits = np.array([[0.0, 0.0, 1.0], [0.0, np.nan, 9.0], [2.0, 0.0, 1.0]])
    found = accuracy_by_class(Outputs(logits, np.array([2, 2, 0])))
    assert [(of["label"], of["correct"], of["n"]) for of in found] == [(0, 1, 1), (2, 1, 2)]
    assert accuracy_by_class(Outputs(np.empty((0, 3)), np.empty(0, dtype=np.int64))) == []
