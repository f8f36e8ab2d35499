"""Looking samples and people up, by POST: their names do not belong into URLs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.matching import Matches, Named
from app.datasets.schemas import Lookup, LookupResult, PoisonedSample, SampleView
from app.errors import Invalid, NotFound
from app.pseudonyms import pseudonyms
from app.tables import DatasetVersion, Sample

_FOUND = """
    SELECT m.sample_id, m.ordinal, s.label, m.content_hash,
           s.ordinal IN (SELECT unnest(ordinals) FROM tombstoned_rows WHERE dataset_version_id = :version)
    FROM (SELECT DISTINCT ordinal, sample_id, content_hash FROM matched_rows
          WHERE dataset_version_id = :version) m
    JOIN samples s ON s.dataset_version_id = CAST(:version AS uuid) AND s.ordinal = m.ordinal
    ORDER BY m.ordinal
"""
_MOST_SHOWN = 10_000


def look_up(session: Session, name: str, wanted: Lookup) -> LookupResult:
    """What the data set's versions in force hold of these samples and people. Raises NotFound."""
    dataset_id = datasets.id_of(session, name)
    matches = Matches(session)
    matches.add(list(_names(wanted)))
    matches.find([dataset_id])
    found: list[SampleView] = []
    for version_id in matches.homes:
        version = datasets.get_version(session, version_id)
        if wanted.dataset_version in (None, version.number):
            found += _views(session, version)
    _, places = matches.unmatched(_MOST_SHOWN)
    samples = len(wanted.sample_ids)
    return LookupResult(
        samples=found[:_MOST_SHOWN],
        more=max(0, len(found) - _MOST_SHOWN),
        unknown_sample_ids=[place for place in places if place < samples],
        unknown_subjects=[place - samples for place in places if place >= samples],
    )


def poisoned(
    session: Session, name: str, number: int | None, *, after: int, limit: int
) -> list[PoisonedSample]:
    """Poisoned samples of a version that is ready, from the place after `after` on. Raises NotFound."""
    try:
        version = datasets.newest_ready(session, name, number)
    except Invalid:
        raise NotFound from None
    drawn = row_sets.poisoned(session, version)
    first = min(after, len(drawn))
    ordinals = list(islice(drawn, first, first + limit))
    rows = select(Sample.ordinal, Sample.sample_id).where(
        Sample.dataset_version_id == version.id, Sample.ordinal.in_(ordinals)
    )
    found = session.execute(rows.order_by(Sample.ordinal)).all()
    return [
        PoisonedSample(position=position, sample_id=sample_id, dataset_version=version.number, row=row)
        for position, (row, sample_id) in enumerate(found, start=first)
    ]


def _names(wanted: Lookup) -> Iterator[Named]:
    """The samples, then the people, numbered through."""
    for place, sample_id in enumerate(wanted.sample_ids):
        yield Named(place, None, sample_id, None)
    for place, subject in enumerate(wanted.subjects, start=len(wanted.sample_ids)):
        yield Named(place, None, None, pseudonyms().subject(subject))


def _views(session: Session, version: DatasetVersion) -> Iterator[SampleView]:
    roles = {role: row_sets.of_role(session, version, role) for role in version.role_sets or {}}
    for sample_id, ordinal, label, content_hash, deleted in session.execute(
        text(_FOUND), {"version": version.id}
    ):
        yield SampleView(
            sample_id=sample_id,
            dataset_version=version.number,
            ordinal=ordinal,
            label=label,
            role=next(role for role, rows in roles.items() if ordinal in rows),
            deleted=deleted,
            content_hash=content_hash.hex(),
        )
