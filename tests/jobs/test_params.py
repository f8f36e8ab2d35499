"""Typed parameters: validated all faults at once, stored with every default."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from app.jobs import params
from app.jobs.params import ARCHITECTURE, METHODS, READERS, RECIPE

_NAN, _ENDLESS = float("nan"), float("inf")


def _faulty(found: pytest.ExceptionInfo[ValidationError]) -> set[str]:
    return {str(error["loc"][0]) for error in found.value.errors()}


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_parameters_survive_storage(name: str) -> None:
    """Every default is spelled out, and reading it again gives the same."""
    chosen = params.method_parameters(name, {})
    stored = json.loads(json.dumps(params.plain_data(chosen)))
    assert params.method_parameters(name, stored) == chosen
    assert set(stored) == set(params.method_schema(name).get("properties", {}))


@pytest.mark.parametrize("name", READERS)
def test_a_readers_options_survive_storage(name: str) -> None:
    """Every default is spelled out, and reading it again gives the same."""
    chosen = params.reader_options(name, {})
    stored = json.loads(json.dumps(params.plain_data(chosen)))
    assert params.reader_options(name, stored) == chosen
    assert set(stored) == set(params.reader_schema(name).get("properties", {}))


@pytest.mark.parametrize("adapter", [RECIPE, ARCHITECTURE], ids=["recipe", "architecture"])
def test_what_a_version_was_made_by_survives_storage(adapter: Any) -> None:
    """A network can be trained again years later."""
    chosen = adapter.validate_python({})
    assert adapter.validate_python(json.loads(json.dumps(params.plain_data(chosen)))) == chosen


@pytest.mark.parametrize("name", ["retrain", "sharp_minmax"])
def test_an_unknown_parameter_is_refused(name: str) -> None:
    """A misspelt one would otherwise do nothing, silently."""
    with pytest.raises(ValidationError) as found:
        params.method_parameters(name, {"roh": 0.1})
    assert _faulty(found) == {"roh"}


def test_every_fault_of_a_methods_parameters_is_found_at_once() -> None:
    """Ranges, choices and numbers that are none."""
    given = {
        "alpha": 2,
        "rho": -0.1,
        "mask_fraction": 1,
        "mask_end": "left",
        "sharpness_weight": _ENDLESS,
        "forget_batch_size": 0,
    }
    with pytest.raises(ValidationError) as found:
        params.method_parameters("sharp_minmax", given)
    assert _faulty(found) == set(given)


@pytest.mark.parametrize("value", [_NAN, _ENDLESS, -1, "fast"])
def test_a_rate_is_a_number_in_its_range(value: Any) -> None:
    """Nothing else can be trained with."""
    with pytest.raises(ValidationError) as found:
        RECIPE.validate_python({"learning_rate": value})
    assert _faulty(found) == {"learning_rate"}


def test_an_objective_is_chosen_by_its_name() -> None:
    """With its own parameters; another one's are refused."""
    recipe = RECIPE.validate_python({"objective": {"name": "sam", "rho": 0.1}})
    assert recipe.objective == params.Sam(name="sam", rho=0.1)
    with pytest.raises(ValidationError):
        RECIPE.validate_python({"objective": {"name": "plain", "rho": 0.1}})


@pytest.mark.parametrize("path", ["/etc/passwd", "../a.parquet", "a/../../b", "a\\b", "a\0b", ""])
def test_a_listed_file_stays_inside_its_location(path: str) -> None:
    """However it is written."""
    with pytest.raises(ValidationError):
        params.reader_options("parquet", {"files": [{"path": path}]})


@pytest.mark.parametrize("name", ["a\0b", "", "x" * 201])
def test_a_columns_name_can_be_stored(name: str) -> None:
    """It is a name of some length, without NUL."""
    with pytest.raises(ValidationError):
        params.reader_options("parquet", {"id_column": name})


@pytest.mark.parametrize("look_up", [params.method_parameters, params.reader_options])
def test_an_unknown_name_is_not_guessed(look_up: Any) -> None:
    """There is no method or reader of that name."""
    with pytest.raises(KeyError):
        look_up("magic", {})


def test_some_method_is_exact_and_costs_are_told() -> None:
    """A ladder needs one; and a caller can compare costs before choosing."""
    assert [name for name, info in METHODS.items() if info.exact] == ["retrain"]
    assert all(info.source and info.summary.endswith(".") for info in METHODS.values())
    assert all(info.use.endswith(".") and info.passes for info in METHODS.values())
    steps = {name for name, info in METHODS.items() if issubclass(info.parameters, params.Steps)}
    assert steps == {name for name, info in METHODS.items() if info.passes_per_step is not None}
