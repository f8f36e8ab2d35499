from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.audit.calibration import Referenced
from workers.audit.outputs import Sets
from workers.audit.rmia import rmia_figures, rmia_scores

MakeNetwork = Callable[..., Sets]


def logit(p: float) -> float:
    return float(np.log(p) - np.log1p(-p))


def referenced(seed: int, n: int, k: int) -> Referenced:
    rng = np.random.default_rng(seed)
    return Referenced(rng.normal(1, 3, n), rng.normal(1, 3, (k, n)))


def test_hand_worked() -> None:
    """With a = .3: Pr = .65 mean + .35; ratios 1.2, and .9 / .935, .3 / .74 of two population rows."""
    row = Referenced(np.array([logit(0.81)]), np.array([[logit(0.6)], [logit(0.4)]]))  # Pr = .675
    population = Referenced(np.array([logit(0.9), logit(0.3)]), np.array([[logit(0.9), logit(0.6)]] * 2))
    assert rmia_scores(row, population).tolist() == [1.0]  # 1.2 / .963 and 1.2 / .405
    assert rmia_scores(row, population, gamma=2.0).tolist() == [0.5]
    assert rmia_scores(row, population, gamma=3.0).tolist() == [0.0]
    assert rmia_scores(population, population, gamma=1.0).tolist() == [1.0, 0.5]


@given(st.integers(0, 50), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([1.0, 2.0]))
def test_agrees_with_every_pair(seed: int, a: float, gamma: float) -> None:
    """The quadratic form on probabilities."""
    rows, population = referenced(seed, 9, 3), referenced(seed + 100, 13, 3)

    def ratios(each: Referenced) -> list[float]:
        p, without = 1 / (1 + np.exp(-each.network)), (1 / (1 + np.exp(-each.references))).mean(axis=0)
        return [float(value) for value in p / (0.5 * ((1 + a) * without + (1 - a)))]

    expected = [np.mean([x / z >= gamma for z in ratios(population)]) for x in ratios(rows)]
    assert rmia_scores(rows, population, a=a, gamma=gamma) == pytest.approx(expected, abs=1e-12)


def test_probabilities_that_round_to_one_do_not_tie() -> None:
    """Margins of 20 and 30 give the same p in single precision; the order of the rows survives."""
    known = Referenced(np.array([20.0, 30.0]), np.zeros((1, 2)))
    assert rmia_scores(known, Referenced(np.array([25.0]), np.zeros((1, 1)))).tolist() == [0.0, 1.0]


def test_figures_find_what_was_remembered(make_network: MakeNetwork) -> None:
    """F known better than by the references stands out; in a retrained network it does not."""
    references = [make_network(seed) for seed in (2, 3)]
    remembered, honest = (
        rmia_figures(network, references=references, rng=np.random.default_rng(0))
        for network in (make_network(1, forget=3.0), make_network(4))
    )
    assert remembered is not None
    assert honest is not None
    assert remembered["low"] > 0.5
    assert honest["low"] < 0.5 < honest["high"]
    assert (remembered["references"], remembered["population"]) == (2, 200)


def test_figures_need_references_and_a_population(make_network: MakeNetwork) -> None:
    """None without either."""
    network = make_network(1)
    empty = {**network, "test": network["test"].take(np.empty(0, dtype=np.int64))}
    assert rmia_figures(network, references=[], rng=np.random.default_rng(0)) is None
    assert rmia_figures(empty, references=[empty], rng=np.random.default_rng(0)) is None


def test_equal_rows_all_score_alike() -> None:
    """Where network and references say the same of every row, each is as well known as all others."""
    same = Referenced(np.zeros(4), np.zeros((2, 4)))
    assert rmia_scores(same, same).tolist() == [1.0] * 4
