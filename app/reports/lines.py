"""Lines of a report's tables: one measure under each network, every figure with its interval and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

NETWORKS: Final = {"original": "Before", "unlearned": "After", "reference": "Retrained"}
AUDITED: Final = ("original", "unlearned")  # what is compared with all references together
ABSENT: Final = "–"
ONE_HALF: Final = 0.5  # the AUC of guessing


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure as text, with its 95% interval, and how many rows it is of, if it is of rows.

    `place`: the interval's low end, the figure if there is one, and the high end, all shares, to be drawn.
    """

    text: str
    interval: str = ""
    rows: int | None = None
    place: tuple[float, float | None, float] | None = None


@dataclass(frozen=True)
class Line:
    """One measure under each network; None where it was not measured."""

    label: str
    explanation: str
    guessing: float | None  # where to mark the bar
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Table:
    """Plain text in rows and columns."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, what it is about, lines under each of its columns, further sentences, and folded tables."""

    heading: str
    intro: str
    columns: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


# --- cells ------------------------------------------------------------------------------------------------


def percentage(entry: Mapping[str, Any] | None) -> Cell | None:
    """{"rate", "low", "high", "n"} as a cell."""
    if entry is None or entry["rate"] is None:
        return None
    place = entry["low"], entry["rate"], entry["high"]
    interval = f"[{100 * entry['low']:.1f}, {100 * entry['high']:.1f}]"
    return Cell(text=f"{100 * entry['rate']:.1f}%", interval=interval, rows=entry["n"], place=place)


def area(entry: Mapping[str, Any] | None, rows: int | None) -> Cell | None:
    """{"auc", "low", "high"} as a cell; of so many rows to forget."""
    if entry is None:
        return None
    place = entry["low"], entry["auc"], entry["high"]
    interval = f"[{entry['low']:.3f}, {entry['high']:.3f}]"
    return Cell(text=f"{entry['auc']:.3f}", interval=interval, rows=rows, place=place)


def usual_range(entry: Mapping[str, Any] | None) -> Cell | None:
    """{"low", "high"} of areas, of which there is no single one, as a cell."""
    if entry is None:
        return None
    interval = f"[{entry['low']:.3f}, {entry['high']:.3f}]"
    return Cell(text="range", interval=interval, place=(entry["low"], None, entry["high"]))


def points(entry: Mapping[str, Any] | None, value: str, rows: int | None) -> Cell | None:
    """A difference of accuracies, of that name, with its "low" and "high", as a cell without a bar."""
    if entry is None:
        return None
    text, low, high = (f"{100 * entry[key]:+z.1f}" for key in (value, "low", "high"))
    return Cell(text=f"{text} points", interval=f"[{low}, {high}]", rows=rows)


def in_words(cell: Cell | None) -> str:
    """A cell in a line of text, without its rows."""
    return f"{cell.text} {cell.interval}".strip() if cell else ABSENT


def change(found: Mapping[str, Any], attack: str) -> str:
    """{"difference", "low", "high"} of an AUC as a sentence."""
    value, low, high = (f"{found[name]:+z.3f}" for name in ("difference", "low", "high"))
    return f"From before to after, the {attack}'s AUC changed by {value} [{low}, {high}]."


def bar(cell: Cell) -> dict[str, str]:
    """Where a cell's interval lies on a line of 100 units from 0 to 1; empty for what is not drawn."""
    if cell.place is None:
        return {}
    places = zip(("x1", "cx", "x2"), cell.place, strict=True)
    return {name: f"{4 + 100 * share:.1f}" for name, share in places if share is not None}


# --- the main table -------------------------------------------------------------------------------------


def measured_networks(figures: Mapping[str, Any]) -> list[str]:
    """The networks that were audited, in the order of the columns."""
    return [name for name in NETWORKS if name in figures["accuracy"]]


def main_lines(figures: Mapping[str, Any]) -> Iterator[Line]:
    """What every audit measures, a cell for each of `measured_networks`."""
    present = measured_networks(figures)
    accuracies = (
        ("forget", "Deleted rows classified right", "How often the network gives a deleted row its label."),
        ("retain", "Remaining rows classified right", "What it was to keep."),
        ("test", "New rows classified right", "Rows it was never trained on: its usefulness."),
    )
    for name, label, explanation in accuracies:
        cells = tuple(percentage(figures["accuracy"][network][name]) for network in present)
        yield Line(label, explanation, None, cells)
    rows = figures["sets"]["forget"]
    yield Line(
        "Attack: AUC (0.5 = guessing)",
        "Can a deleted row be told from a row the network never saw?",
        ONE_HALF,
        tuple(area(figures["membership"][network], rows) for network in present),
    )
    yield Line(
        "Second attack: called non-members",
        "Deleted rows that a simpler attack takes for unseen; the retrained network's share is the target.",
        None,
        tuple(percentage(figures["svc_confidence"][network]) for network in present),
    )
