from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import sem, t

from workers.audit.comparison import MEASURES, interval, summary


@pytest.mark.parametrize("count", [2, 5])
def test_the_interval_is_students(count: int) -> None:
    """As scipy gives it for the mean of a normal sample."""
    values = np.random.default_rng(0).normal(size=count).tolist()
    found = interval(values)
    assert found is not None
    low, high = t.interval(0.95, count - 1, loc=np.mean(values), scale=sem(values))
    assert found == {"n": count} | {
        name: pytest.approx(value)
        for name, value in (("mean", np.mean(values)), ("low", low), ("high", high))
    }


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    """Nothing is made up."""
    assert interval([0.25, None]) == {"n": 1, "mean": 0.25, "low": None, "high": None}
    assert interval([None]) is None


def _row(place: int, method: str, value: float | None) -> dict[str, Any]:
    if value is None:
        return {"place": place, "method": method, "failure": "no", "measures": None}
    measured = dict.fromkeys(MEASURES, value) | {"average_gap": None}
    return {"place": place, "method": method, "failure": None, "measures": measured}


def test_methods_are_summed_up_apart() -> None:
    """By their place in the list: one method may come twice with other parameters; failures are counted."""
    rows = [
        _row(0, "neggrad", 0.2),
        _row(1, "neggrad", 0.9),
        _row(0, "neggrad", 0.4),
        _row(1, "neggrad", None),
    ]
    first, second = summary(rows)
    assert (first["runs"], first["failures"]) == (2, 0)
    assert first["tug_of_war"]["mean"] == pytest.approx(0.3)
    assert first["average_gap"] is None
    assert (second["runs"], second["failures"]) == (2, 1)
    assert second["tug_of_war"] == {"n": 1, "mean": 0.9, "low": None, "high": None}


def test_backdoors_are_summed_up_where_there_are_any() -> None:
    """On data that is not poisoned nobody asks for them."""
    plain = _row(0, "neggrad", 0.2)
    poisoned = [
        {**plain, "measures": {**plain["measures"], "attack_success": value, "attack_floor": 0.1}}
        for value in (0.5, 0.7)
    ]
    assert "attack_success" not in summary([plain])[0]
    found = summary([*poisoned, _row(0, "neggrad", None)])[0]
    assert found["attack_success"]["mean"] == pytest.approx(0.6)
    assert (found["attack_success"]["n"], found["attack_floor"]["mean"]) == (2, pytest.approx(0.1))
