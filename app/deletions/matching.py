"""From what a caller names to rows: every fault found at once, nothing guessed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.datasets import service as datasets
from app.datasets import tombstones
from app.datasets.tombstones import Found, Named
from app.deletions.schemas import NewItem, NewRequest
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


def match(session: Session, new: NewRequest, names: Pseudonyms) -> Matches:
    """Find the rows that the request's items name.

    Raises:
        Invalid: naming each item whose data set is unknown or retired, and each that several data sets
            could be meant by; or each item, if none of them was found.
    """
    dataset_ids, faults = _datasets(session, new)
    named = [
        Named(
            position=position,
            dataset_id=dataset_ids.get(item.dataset or new.dataset or ""),
            sample_id=item.sample_id,
            subject_key=names.subject(item.subject) if item.subject is not None else None,
        )
        for position, item in enumerate(new.items)
    ]
    if faults:
        raise Invalid(faults=faults)
    found = tombstones.find(session, named)
    if faults := _ambiguous(named, found):
        raise Invalid(faults=faults)
    if not found:
        raise Invalid("Nothing that the request names was found.", faults=_unknown(new.items))
    return Matches(named, found)


def _datasets(session: Session, new: NewRequest) -> tuple[dict[str, uuid.UUID], list[Fault]]:
    wanted = {"/dataset": new.dataset} if new.dataset else {}
    wanted |= {f"/items/{i}/dataset": item.dataset for i, item in enumerate(new.items) if item.dataset}
    known = datasets.by_names(session, sorted(set(wanted.values())))
    in_force = datasets.in_force(session, list(known.values()))
    faults = []
    for pointer, name in wanted.items():
        if name not in known:
            faults.append(Fault(pointer=pointer, detail="there is no such data set"))
        elif known[name] not in in_force:
            faults.append(Fault(pointer=pointer, detail="no version of the data set is in force"))
    return known, faults


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


def _unknown(items: Sequence[NewItem]) -> list[Fault]:
    details = {
        True: ("sample_id", "no data set has such a sample"),
        False: ("subject", "no sample is about them"),
    }
    return [
        Fault(pointer=f"/items/{position}/{details[by_id][0]}", detail=details[by_id][1])
        for position, by_id in enumerate(item.sample_id is not None for item in items)
    ]
