"""Features against definitions in extended precision, scipy, scikit-learn and cases worked by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import log_loss

from workers.audit.features import (
    FEATURES,
    confidence,
    correctness,
    entropy,
    losses,
    margins,
    modified_entropy,
    probabilities,
)
from workers.audit.outputs import FloatArray, Outputs

MakeOutputs = Callable[..., Outputs]
logit_rows = st.lists(st.floats(-60, 60), min_size=2, max_size=5)


def exact_probabilities(outputs: Outputs) -> FloatArray:
    """By the definition of softmax, in extended precision: longdouble [n, C]."""
    powers = np.exp(outputs.logits.astype(np.longdouble))
    return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


class TestMargins:
    def test_is_the_log_odds_of_the_label(self, make_outputs: MakeOutputs) -> None:
        """phi is log p - log(1 - p) of the true label's probability."""
        outputs = make_outputs(1)
        p = exact_probabilities(outputs)[np.arange(200), outputs.labels]
        np.testing.assert_allclose(margins(outputs), (np.log(p) - np.log1p(-p)).astype(float), atol=1e-9)

    def test_does_not_saturate(self) -> None:
        """Where p rounds to 1 phi still tells how sure the network is: here 200 and 300 less log 2."""
        outputs = Outputs(np.array([[200.0, 0.0, 0.0], [0.0, 300.0, 0.0]]), np.array([0, 1]))
        assert margins(outputs).tolist() == pytest.approx([200 - np.log(2), 300 - np.log(2)], abs=1e-12)

    def test_ignores_a_common_shift_and_leaves_its_input_alone(self, make_outputs: MakeOutputs) -> None:
        """Adding a constant to a row's logits changes nothing, and the logits given are not written to."""
        outputs = make_outputs(2)
        before = outputs.logits.copy()
        shifted = Outputs(outputs.logits + 50.0, outputs.labels)
        np.testing.assert_allclose(margins(outputs), margins(shifted), atol=1e-11)
        np.testing.assert_array_equal(outputs.logits, before)


class TestModifiedEntropy:
    def test_is_its_definition(self, make_outputs: MakeOutputs) -> None:
        """The sum over classes, class by class and row by row."""
        outputs = make_outputs(3, n=60)
        found = modified_entropy(outputs)
        for row, (p, y) in enumerate(zip(exact_probabilities(outputs), outputs.labels, strict=True)):
            others = sum(p[k] * np.log(1 - p[k]) for k in range(6) if k != y)
            assert found[row] == pytest.approx(float(-(1 - p[y]) * np.log(p[y]) - others), abs=1e-9)

    def test_hand_worked(self) -> None:
        """p = (.7, .2, .1), y = 0: the sum of .10700248, .04462871 and .01053605."""
        outputs = Outputs(np.log([[0.7, 0.2, 0.1]]), np.array([0]))
        assert modified_entropy(outputs).tolist() == pytest.approx([0.16216725], abs=1e-8)

    def test_grows_without_bound_where_wrong_and_certain(self) -> None:
        """0 where right and certain; 100 for the label missed and 100 for the class taken instead."""
        outputs = Outputs(np.array([[0.0, 100.0], [0.0, 100.0]]), np.array([1, 0]))
        assert modified_entropy(outputs).tolist() == pytest.approx([0.0, 200.0], abs=1e-9)

    @given(logit_rows)
    def test_is_a_number_at_least_zero(self, logits: list[float]) -> None:
        """Whatever the logits, ties and saturation included."""
        found = modified_entropy(Outputs(np.array([logits]), np.array([0])))
        assert np.isfinite(found).all()
        assert (found >= 0).all()


def test_the_others_agree_with_libraries(make_outputs: MakeOutputs) -> None:
    """softmax by definition, entropy by scipy, cross-entropy by scikit-learn, correctness by counting."""
    outputs = make_outputs(4, n=50)
    p, rows = exact_probabilities(outputs).astype(np.float64), np.arange(50)
    np.testing.assert_allclose(probabilities(outputs), p, atol=1e-12)
    np.testing.assert_allclose(confidence(outputs), p[rows, outputs.labels], atol=1e-12)
    np.testing.assert_allclose(entropy(outputs), stats.entropy(p, axis=1), atol=1e-12)
    assert losses(outputs).mean() == pytest.approx(log_loss(outputs.labels, p, labels=range(6)), abs=1e-12)
    assert correctness(outputs).tolist() == (p.argmax(axis=1) == outputs.labels).astype(float).tolist()


def test_a_loss_does_not_saturate() -> None:
    """200 nats where the label has probability e^-200, and e^-200 where it has all the rest."""
    outputs = Outputs(np.array([[200.0, 0.0], [200.0, 0.0]]), np.array([1, 0]))
    assert losses(outputs).tolist() == pytest.approx([200.0, np.exp(-200.0)], rel=1e-12)


@pytest.mark.parametrize("name", FEATURES)
def test_one_row_and_none(make_outputs: MakeOutputs, name: str) -> None:
    """Every feature has one entry a row, also of one row and of none."""
    outputs = make_outputs(5, n=1)
    for rows in (np.array([0]), np.array([], dtype=np.int64)):
        assert len(FEATURES[name](outputs.take(rows))) == len(rows)
