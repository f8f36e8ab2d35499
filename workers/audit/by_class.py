"""Accuracy class by class: an average hides a class that was forgotten whole, or lost as collateral.

Fast audit, issue 6: "FA, RA, TA per class with Wilson intervals".

    {"accuracy_by_class": {NETWORK: {"retain" | "forget" | "test":        classes that occur, ascending
         [{"label", "correct": k, "n": n, "rate", "low", "high"}]}}}
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workers.audit.outputs import Outputs
from workers.audit.statistics import rate


def accuracy_by_class(outputs: Outputs) -> list[dict[str, Any]]:
    """How often the rows of each label are classified as labelled, with Wilson's 95% interval.

    The intervals are one by one: of a hundred classes, some five will have theirs miss the true rate.
    """
    labels, class_of, sizes = np.unique(outputs.labels, return_inverse=True, return_counts=True)
    hits = np.bincount(class_of, weights=outputs.correct, minlength=len(labels)).astype(np.int64)
    counts = zip(labels.tolist(), hits.tolist(), sizes.tolist(), strict=True)
    return [{"label": label, "correct": k, "n": n, **rate(k, n)} for label, k, n in counts]
