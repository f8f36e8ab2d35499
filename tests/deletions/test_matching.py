"""From what a request names to rows, with every fault at once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from app.datasets import service as datasets
from app.datasets.matching import Matches
from app.deletions.matching import match
from app.deletions.schemas import NewRequest
from app.deletions.service import naming_of
from app.errors import Faults
from app.pseudonyms import pseudonyms
from tests.fixtures.world import World, invented_rows


def _match(world: World, request: dict[str, Any]) -> tuple[Matches, Faults]:
    faults = Faults()
    naming = naming_of(NewRequest.model_validate(request))
    return match(world.session, naming, pseudonyms(), faults), faults


def _faults(world: World, request: dict[str, Any]) -> dict[str, str]:
    _, faults = _match(world, request)
    assert faults.count == len(faults.first)
    return {fault.pointer: fault.detail for fault in faults.first}


def _rows(world: World, request: dict[str, Any]) -> dict[int, set[int]]:
    """The rows found for each position that has any; a subject named again counts where it came first."""
    _, faults = _match(world, request)
    assert not faults.count
    found: dict[int, set[int]] = {}
    for position, ordinal in world.session.execute(text("SELECT position, ordinal FROM matched_rows")):
        found.setdefault(position, set()).add(ordinal)
    return found


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
    matches, _ = _match(world, {"items": [{"subject": "person-2"}]})
    assert [len(matches.rows_of(version_id)) for version_id in matches.homes] == [10, 10]


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
    faults = _faults(world, {"items": items})
    assert faults == {
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


def test_a_sample_named_many_times_is_found_each_time(world: World) -> None:
    """Every item has its row; nothing is multiplied."""
    world.dataset()
    items = [{"sample_id": "faces-08"}] * 50
    assert _rows(world, {"dataset": "faces", "items": items}) == {position: {8} for position in range(50)}


def test_a_subject_named_many_times_is_searched_once(world: World) -> None:
    """The first item stands for the others, in each data set for itself."""
    world.dataset("faces")
    world.dataset("other")
    items = [
        {"subject": "person-1"},
        {"subject": "person-1"},
        {"subject": "person-1", "dataset": "other"},
        {"subject": "person-1", "dataset": "other"},
    ]
    expected = set(range(1, 60, 6))
    assert _rows(world, {"dataset": "faces", "items": items}) == {0: expected, 2: expected}


def test_of_very_many_faults_the_first_are_kept_and_all_are_counted(world: World) -> None:
    """A million unknown IDs do not make a million faults in memory."""
    world.dataset()
    items = [{"sample_id": f"unknown-{number}"} for number in range(1500)]
    _, faults = _match(world, {"dataset": "faces", "items": items})
    assert (faults.count, len(faults.first)) == (1500, 1000)
    assert faults.first[999].pointer == "/items/999/sample_id"
