from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workers.audit.outputs import FloatArray, IntArray, Networks, Outputs, SetName, Sets, variant


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


def test_features_go_with_their_rows() -> None:
    """Chosen rows keep their own features; features of another number of rows are refused."""
    labels = np.array([0, 1, 2])
    outputs = Outputs(np.zeros((3, 3)), labels, np.arange(6.0).reshape(3, 2))
    features = outputs.take(np.array([2, 0])).features
    assert features is not None
    np.testing.assert_array_equal(features, [[4, 5], [0, 1]])
    with pytest.raises(ValueError, match="features"):
        Outputs(np.zeros((3, 3)), labels, np.zeros((2, 2)))


def test_a_condition_is_there_only_as_a_pair() -> None:
    """F and H under noise, by their usual names."""
    outputs = Outputs(np.zeros((1, 2)), np.zeros(1, dtype=np.int64))
    sets: dict[SetName, Outputs] = {"forget_noisy": outputs, "holdout_noisy": outputs}
    assert variant(sets, "noisy") == {"forget": outputs, "holdout": outputs}
    assert variant({"forget_noisy": outputs}, "noisy") is None


def test_networks_by_name(make_network: Callable[..., Sets]) -> None:
    """The first reference has a name, and a change reaches every network."""
    sets = [make_network(seed) for seed in range(4)]
    networks = Networks(sets[0], sets[1], (sets[2], sets[3]))
    assert list(networks.named) == ["original", "unlearned", "reference"]
    assert networks.named["reference"] is sets[2]
    changed = networks.each(lambda each: {"test": each["test"]})
    assert changed.references[1] == {"test": sets[3]["test"]}
    assert set(changed.original) == {"test"}
