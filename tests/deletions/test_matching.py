"""From what a request names to rows, with every fault at once."""

from __future__ import annotations

from typing import Any

import pytest

from app.datasets import service as datasets
from app.deletions.matching import match
from app.deletions.schemas import NewRequest
from app.errors import Fault, Invalid
from app.pseudonyms import pseudonyms
from tests.fixtures.world import World, invented_rows


def _faults(world: World, request: dict[str, Any], *further: Fault) -> dict[str, str]:
    new = NewRequest.model_validate(request)
    with pytest.raises(Invalid) as found:
        match(world.session, new, pseudonyms(), further_faults=further)
    return {fault.pointer: fault.detail for fault in found.value.faults}


def _rows(world: World, request: dict[str, Any]) -> dict[int, set[int]]:
    matches = match(world.session, NewRequest.model_validate(request), pseudonyms())
    return {position: {ordinal for _, ordinal in rows} for position, rows in matches.rows_per_item().items()}


def test_each_item_is_matched_by_itself(world: World) -> None:
    """A sample ID names one row, a subject all rows about them, and what is unknown nothing."""
    world.dataset()
    items = [{"sample_id": "faces-08"}, {"sample_id": "unknown"}, {"subject": "person-2"}]
    found = _rows(world, {"dataset": "faces", "items": items})
    assert found == {0: {8}, 2: set(range(2, 60, 6))}


def test_an_items_own_data_set_comes_first(world: World) -> None:
    """The request's data set holds only for items that name none."""
    world.dataset("faces")
    world.dataset("other")
    items = [{"sample_id": "other-08", "dataset": "other"}, {"sample_id": "faces-08"}]
    assert _rows(world, {"dataset": "faces", "items": items}) == {0: {8}, 1: {8}}


def test_without_a_data_set_all_are_searched(world: World) -> None:
    """A subject is found in every data set that knows them."""
    world.dataset("faces")
    world.dataset("other")
    new = NewRequest.model_validate({"items": [{"subject": "person-2"}]})
    matches = match(world.session, new, pseudonyms())
    assert len(matches.rows_per_item()[0]) == 20


def test_a_sample_id_that_two_data_sets_have_is_ambiguous(world: World) -> None:
    """Nothing is guessed: the caller has to say which one is meant."""
    world.dataset("faces")
    world.load(world.register("copy"), invented_rows("faces"))
    faults = _faults(world, {"items": [{"sample_id": "faces-01"}, {"subject": "person-1"}]})
    assert set(faults) == {"/items/0/dataset"}


def test_unknown_items_alone_are_a_fault_each(world: World) -> None:
    """A request of which nothing was found is refused, and says so for each item."""
    world.dataset()
    items = [{"sample_id": "unknown"}, {"subject": "nobody"}]
    faults = _faults(world, {"dataset": "faces", "items": items})
    assert set(faults) == {"/items/0/sample_id", "/items/1/subject"}


def test_faults_do_not_repeat_what_was_sent(world: World) -> None:
    """Neither an ID nor a name of a data set comes back."""
    world.dataset()
    request = {"items": [{"sample_id": "secret-id"}, {"subject": "secret", "dataset": "secret-set"}]}
    assert "secret" not in str(_faults(world, request))


def test_every_kind_of_fault_is_named_at_once(world: World) -> None:
    """Unknown and retired data sets, ambiguous IDs, and what was wrong besides."""
    world.dataset("faces")
    world.load(world.register("copy"), invented_rows("faces"))
    world.dataset("gone")
    datasets.retire(world.session, "gone", "contract ended", actor="desk")
    items = [
        {"sample_id": "faces-01"},
        {"sample_id": "gone-01", "dataset": "gone"},
        {"sample_id": "x", "dataset": "nowhere"},
        {"sample_id": "faces-02", "dataset": "faces"},
    ]
    faults = _faults(world, {"items": items}, Fault(pointer="/due_at", detail="must lie in the future"))
    assert faults == {
        "/due_at": "must lie in the future",
        "/items/0/dataset": "several data sets have a sample of this ID: name the one that is meant",
        "/items/1/dataset": "no version of the data set is in force",
        "/items/2/dataset": "there is no such data set",
    }


def test_items_of_an_unknown_data_set_are_not_sought_elsewhere(world: World) -> None:
    """A wrong name does not turn into any data set at all."""
    world.dataset()
    faults = _faults(world, {"dataset": "nowhere", "items": [{"sample_id": "faces-01"}]})
    assert set(faults) == {"/dataset"}


def test_a_data_set_that_is_still_read_is_not_in_force(world: World) -> None:
    """Nothing can be deleted from rows that are not there yet."""
    world.register()
    faults = _faults(world, {"dataset": "faces", "items": [{"sample_id": "faces-01"}]})
    assert set(faults) == {"/dataset"}
