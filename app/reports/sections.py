"""Sections of a report beyond its main table: what the audit found elsewhere, where that was measured.

The layouts of the figures are in workers/audit/figures.py and the modules that it names. A figure that is
missing, as in reports from before it was measured, leaves out its line, and a section without a line is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from app.reports.beside import beside_retrained, beside_shadows, relearning
from app.reports.lines import (
    AUDITED,
    NETWORKS,
    ONE_HALF,
    Line,
    Section,
    area,
    change,
    in_words,
    measured_networks,
    percentage,
    points,
)
from app.reports.questions import figure
from app.reports.tables import tables_by_class, tables_of_customary, tables_of_moved
from app.reports.wording import count

Figures = Mapping[str, Any]


def sections(figures: Figures) -> Iterator[Section]:
    """Those that these figures fill, in the order of the page."""
    for of in _SECTIONS:
        section = of(figures)
        if section and (section.lines or section.notes or section.tables):
            yield section


# --- other places to look in ----------------------------------------------------------------------------


def _other_places(figures: Figures) -> Section:
    present = measured_networks(figures)
    return Section(
        heading="Looking in other places",
        intro=(
            "What a network remembers may not show in its answers. Perhaps only its last layer was changed, "
            "or it answers for the exact images alone, or its weights were changed by so little that storing "
            "them in fewer bits undoes it. A retrained network shows what each of these looks like where "
            "there is nothing to find."
        ),
        columns=tuple(NETWORKS[name] for name in present),
        lines=(*_noisy(figures, present), *_probed(figures, present), *_rounded(figures, present)),
        notes=tuple(_excesses(figures)),
    )


def _noisy(figures: Figures, present: list[str]) -> Iterator[Line]:
    rows = figure(figures, "sets", "forget")
    cells = tuple(area(figure(figures, "noisy", name), rows) for name in present)
    if any(cells):
        explanation = "The attack of the table above, with a little noise on every image."
        yield Line("Attack on noisy images: AUC", explanation, ONE_HALF, cells)


def _probed(figures: Figures, present: list[str]) -> Iterator[Line]:
    probes = [figure(figures, "probe", name) for name in present]
    if not any(probes):
        return
    yield from _rates(
        "New last layer", probes, "A new last layer, fitted on remaining rows, gets them right."
    )
    yield Line(
        "New last layer: the gap",
        "How much more often it is right on deleted rows than on unseen ones.",
        None,
        tuple(points(probe, "gap", figure(probe, "forget", "n")) for probe in probes),
    )


def _rounded(figures: Figures, present: list[str]) -> Iterator[Line]:
    for name, bits in (("int8", 8), ("int4", 4)):
        found = [figure(figures, "rounded", name, network) for network in present]
        if any(found):
            yield from _rates(f"{bits}-bit weights", found, f"With its weights rounded to {bits} bits.")


def _rates(label: str, entries: list[Any], explanation: str) -> Iterator[Line]:
    for place, rows in (("forget", "deleted"), ("holdout", "unseen")):
        cells = tuple(percentage(figure(entry, place)) for entry in entries)
        yield Line(f"{label}: {rows} rows right", explanation, None, cells)


def _excesses(figures: Figures) -> Iterator[str]:
    """How much wider each gap between deleted and unseen rows is than in the retrained networks."""
    places = {
        "a new last layer": ("probe",),
        "8-bit weights": ("rounded", "int8"),
        "4-bit weights": ("rounded", "int4"),
    }
    cells = {
        name: points(figure(figures, *place, "excess"), "difference", None) for name, place in places.items()
    }
    told = [f"{name} {in_words(cell)}" for name, cell in cells.items() if cell]
    if told:
        yield (
            f"How much more often deleted rows than unseen ones are right, beyond the same gap in the "
            f"retrained networks: {'; '.join(told)}."
        )


# --- what the comparison is worth, and what else was changed -----------------------------------------


def _blind(figures: Figures) -> Section | None:
    found = figure(figures, "blind")
    if found is None:
        return None
    return Section(
        heading="Is the comparison fair?",
        intro=(
            "An attack that sees the images alone, and asks no network, tries to tell the deleted rows from "
            "those unseen rows with which all attacks compare them. Where it can, what another attack finds "
            "may be due to that and not to memory."
        ),
        columns=("No network",),
        lines=(
            Line(
                "Attack without a network: AUC",
                "Can the deleted rows be told from the unseen ones by what they look like?",
                ONE_HALF,
                (area(found, found["forget"]),),
            ),
        ),
        notes=(
            f"Learned on half of these and of {count(found['holdout'], 'unseen row')}, tried on the rest.",
        ),
    )


def _retained(figures: Figures) -> Section | None:
    found = figure(figures, "retained")
    if found is None:
        return None
    return Section(
        heading="The rows that remain",
        intro=(
            "Forgetting some rows may lay others open. The same attack, on rows that the network was trained "
            "on and keeps: they are in its training data, so it may well find them, but it should not find "
            "them more easily than before."
        ),
        columns=tuple(NETWORKS[name] for name in AUDITED),
        lines=(
            Line(
                "Attack on remaining rows: AUC",
                "Can a remaining row be told from a row the network never saw?",
                ONE_HALF,
                tuple(area(found[name], found["n"]) for name in AUDITED),
            ),
        ),
        notes=(f"{change(found['difference'], 'attack')} No verdict rests on it.",),
    )


def _changed(figures: Figures) -> Section:
    return Section(
        heading="What was changed in the network",
        intro=(
            "That little was changed proves nothing, nor does that much was. But between the weights and the "
            "answers there may be nothing that the original does not have, such as a table of answers."
        ),
        notes=(*_moved(figures), *_built(figures)),
        tables=tuple(tables_of_moved(figures)),
    )


def _moved(figures: Figures) -> Iterator[str]:
    found = figure(figures, "moved")
    if found is None:
        return
    share, far = (
        "an unknown part" if value is None else f"{100 * value:.3g}%"
        for value in (found["share"], found["relative"])
    )
    yield (
        f"{found['changed']} of {count(found['tensors'], 'tensor')} changed, and {share} of all values. All "
        f"together moved by {far} of their length."
    )
    if found["head_only"]:
        yield (
            "Of all layers only the last was trained: what the others learned from the deleted rows is there "
            "still."
        )


def _built(figures: Figures) -> Iterator[str]:
    faults = figure(figures, "artefact", "faults")
    if faults is None:
        return
    yield from (f"It is not built as the original is: {fault}" for fault in faults)
    if not faults:
        yield "It is built as the original is: nothing was added to it."


def _by_class(figures: Figures) -> Section:
    return Section(
        heading="Class by class",
        intro=(
            "An average can hide a class that was lost or forgotten as a whole. Each interval stands for "
            "itself: of a hundred, some five miss the true rate."
        ),
        tables=tuple(tables_by_class(figures)),
    )


def _customary(figures: Figures) -> Section:
    return Section(
        heading="Customary attacks",
        intro=(
            "No verdict rests on these. Papers report them: the share of the deleted rows that a simple "
            "attack takes for unseen. More is not better; the retrained network's share is the target."
        ),
        tables=tuple(tables_of_customary(figures)),
    )


_SECTIONS: Final[tuple[Callable[[Figures], Section | None], ...]] = (
    beside_retrained,
    beside_shadows,
    _other_places,
    relearning,
    _blind,
    _retained,
    _changed,
    _by_class,
    _customary,
)
