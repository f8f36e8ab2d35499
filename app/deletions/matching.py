"""From what a caller names to rows: every fault found at once, nothing guessed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sqlalchemy.orm import Session

from app.datasets import service as datasets
from app.datasets.matching import Matches, Named
from app.errors import FAULTS_SHOWN, Faults
from app.pseudonyms import Pseudonyms

BATCH = 5_000  # items held at a time


class Item(Protocol):
    """What a caller names: one sample by its ID, or every sample about one subject."""

    @property
    def dataset(self) -> str | None: ...

    @property
    def sample_id(self) -> str | None: ...

    @property
    def subject(self) -> str | None: ...


@dataclass(frozen=True)
class Run:
    """Items that are sample IDs and nothing else: what nearly every long list is made of."""

    places: Sequence[int]
    sample_ids: Sequence[str]


Numbered = tuple[int, Item]
Batch = Run | Sequence[Numbered]


@dataclass(frozen=True)
class Naming:
    """The items of one request, in their order.

    Attributes:
        dataset: Where items that name no data set belong; None: anywhere.
        batches: The items with their places: the index in a list, or the line of a file. Gone through once.
        pointer: The words for a place and the field there, as faults have it.
    """

    dataset: str | None
    batches: Iterable[Batch]
    pointer: Callable[[int, str], str]


def batched(items: Iterable[Numbered]) -> Iterator[Sequence[Numbered]]:
    """The items in batches of a size that is no burden to hold."""
    left = iter(items)
    while batch := list(islice(left, BATCH)):
        yield batch


def json_pointer(prefix: str = "") -> Callable[[int, str], str]:
    """Places in a JSON body's list of items."""
    return lambda place, field: f"{prefix}/items/{place}/{field}"


def match(session: Session, naming: Naming, names: Pseudonyms, faults: Faults, *, at: str = "") -> Matches:
    """Find the rows that the request's items name; what is wrong with it is added to `faults`.

    Faults: a data set that is unknown or retired, a sample ID that several data sets could be meant by, and
    every item, if none of them was found.
    """
    matches = Matches(session)
    homes = _Homes(session)
    home = homes.find(naming.dataset)
    if home.fault:
        faults.add(f"{at}/dataset", home.fault)
    for batch in naming.batches:
        if not isinstance(batch, Run):
            matches.add(_named(batch, naming, homes, names, faults))
        elif home.fault is None:
            matches.add_samples(home.id, batch.places, batch.sample_ids)
    in_force = datasets.in_force(session, None) if matches.has_homeless else homes.ids
    found = matches.find(in_force)
    count, places = matches.ambiguous(FAULTS_SHOWN)
    faults.add_counted(
        count,
        (naming.pointer(place, "dataset") for place in places),
        "several data sets have a sample of this ID: name the one that is meant",
    )
    if not matches.count and not faults.count:
        faults.add(f"{at}/items", "there are none")
    elif not found:
        _report_unknown(matches, naming, faults)
    return matches


@dataclass(frozen=True)
class _Home:
    """A data set that is named, or what is wrong with it; neither: anywhere."""

    id: uuid.UUID | None = None
    fault: str | None = None


class _Homes:
    """The data sets that a request names, each looked up and held in force once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: dict[str | None, _Home] = {None: _Home()}

    def find(self, name: str | None) -> _Home:
        """The data set of this name. It gets no other version, nor loses one, until the transaction ends."""
        if name not in self._found:
            self._found[name] = self._look_up(name or "")
        return self._found[name]

    @property
    def ids(self) -> set[uuid.UUID]:
        """Those found so far."""
        return {home.id for home in self._found.values() if home.id is not None}

    def _look_up(self, name: str) -> _Home:
        dataset_id = datasets.by_names(self._session, [name]).get(name)
        if dataset_id is None:
            return _Home(fault="there is no such data set")
        if not datasets.in_force(self._session, [dataset_id]):
            return _Home(fault="no version of the data set is in force")
        return _Home(dataset_id)


def _named(
    batch: Sequence[tuple[int, Item]], naming: Naming, homes: _Homes, names: Pseudonyms, faults: Faults
) -> list[Named]:
    """The items as they are looked for; those of a data set with a fault are left out."""
    named: list[Named] = []
    for place, item in batch:
        home = homes.find(item.dataset or naming.dataset)
        if home.fault is None:
            key = names.subject(item.subject) if item.subject is not None else None
            named.append(Named(place, home.id, item.sample_id, key))
        elif item.dataset:
            faults.add(naming.pointer(place, "dataset"), home.fault)
    return named


def _report_unknown(matches: Matches, naming: Naming, faults: Faults) -> None:
    """Nothing at all was found: say so of each item."""
    count, places = matches.unmatched(FAULTS_SHOWN)
    for place, field in matches.kinds(places):
        detail = "no data set has such a sample" if field == "sample_id" else "no sample is about them"
        faults.add(naming.pointer(place, field), detail)
    faults.count += count - len(places)
