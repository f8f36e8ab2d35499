"""From what a caller names to rows: every fault found at once, nothing guessed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.datasets import service as datasets
from app.datasets import tombstones
from app.datasets.tombstones import Found, Named
from app.deletions.schemas import NewRequest
from app.errors import Fault, Invalid
from app.pseudonyms import Pseudonyms


@dataclass(frozen=True)
class Matches:
    """A request's items with the rows found for each, in the order given."""

    named: Sequence[Named]
    found: Sequence[Found]

    def rows_per_item(self) -> dict[int, set[tuple[uuid.UUID, int]]]:
        """The distinct rows found for each position that has any."""
        rows: dict[int, set[tuple[uuid.UUID, int]]] = {}
        for row in self.found:
            rows.setdefault(row.position, set()).add((row.version_id, row.ordinal))
        return rows


def match(
    session: Session, new: NewRequest, names: Pseudonyms, *, further_faults: Sequence[Fault] = ()
) -> Matches:
    """Find the rows that the request's items name.

    Raises:
        Invalid: naming `further_faults`, each item whose data set is unknown or retired, and each that
            several data sets could be meant by; and each item, if none of them was found.
    """
    known, in_force = _data_sets(session, new)
    faults = [*further_faults, *_data_set_faults(new, known, in_force)]
    named = [
        Named(
            position=position,
            dataset_id=known.get(item.dataset or new.dataset or ""),
            sample_id=item.sample_id,
            subject_key=names.subject(item.subject) if item.subject is not None else None,
        )
        for position, item in enumerate(new.items)
    ]
    clear = [
        item
        for item, given in zip(named, new.items, strict=True)
        if item.dataset_id in in_force or (given.dataset or new.dataset) is None
    ]
    found = tombstones.find(session, clear)
    faults += _ambiguous(clear, found)
    if not found:
        faults += _unknown(clear)
    if faults:
        raise Invalid(faults=faults)
    return Matches(named, found)


def _data_sets(session: Session, new: NewRequest) -> tuple[dict[str, uuid.UUID], set[uuid.UUID]]:
    """The data sets that are named, and which are in force: of all of them, if an item names none."""
    anywhere = new.dataset is None and any(item.dataset is None for item in new.items)
    known = datasets.by_names(session, sorted(set(_named_data_sets(new).values())))
    return known, datasets.in_force(session, None if anywhere else list(known.values()))


def _named_data_sets(new: NewRequest) -> dict[str, str]:
    """Each data set's name by the place where the request has it."""
    wanted = {"/dataset": new.dataset} if new.dataset else {}
    return wanted | {f"/items/{i}/dataset": item.dataset for i, item in enumerate(new.items) if item.dataset}


def _data_set_faults(
    new: NewRequest, known: Mapping[str, uuid.UUID], in_force: Set[uuid.UUID]
) -> Iterator[Fault]:
    for pointer, name in _named_data_sets(new).items():
        if name not in known:
            yield Fault(pointer=pointer, detail="there is no such data set")
        elif known[name] not in in_force:
            yield Fault(pointer=pointer, detail="no version of the data set is in force")


def _ambiguous(named: Sequence[Named], found: Sequence[Found]) -> list[Fault]:
    """Sample IDs, given without a data set, that several data sets have. A subject may well be in several."""
    homes: dict[int, set[uuid.UUID]] = {}
    for row in found:
        homes.setdefault(row.position, set()).add(row.dataset_id)
    return [
        Fault(
            pointer=f"/items/{item.position}/dataset",
            detail="several data sets have a sample of this ID: name the one that is meant",
        )
        for item in named
        if item.sample_id is not None and len(homes.get(item.position, ())) > 1
    ]


def _unknown(items: Sequence[Named]) -> list[Fault]:
    return [
        Fault(pointer=f"/items/{item.position}/sample_id", detail="no data set has such a sample")
        if item.sample_id is not None
        else Fault(pointer=f"/items/{item.position}/subject", detail="no sample is about them")
        for item in items
    ]
