"""The pictures of a report: each an image, in which nothing can run, with words and a table."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.reports.lines import NETWORKS, Table
from app.reports.questions import figure
from app.reports.tables import table

MARGINS: Final = "margins.svg"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image as Base64 of its SVG, what it shows in short and for those who see it, and the numbers."""

    data: str
    alt: str
    caption: str
    table: Table | None


@dataclass(frozen=True)
class _Kind:
    alt: str
    caption: str


_MARGINS: Final = _Kind(
    "Histograms of how sure each network is of the deleted rows and of unseen rows; the attack's AUC in the "
    "table above sums them up.",
    "How sure each network is of the right label, for deleted rows and for comparable rows it never saw. The "
    "more the two shapes cover each other, the less there is for an attack to see.",
)
_COMPARING: Final = {
    "entanglement.svg": _Kind(
        "Bars of how entangled deleted and remaining rows are in each network; the table below has the "
        "numbers.",
        "Entanglement: how hard deleted and remaining rows are to tell apart in what the network makes of "
        "them before its last layer. The higher, the harder it is to forget the ones and keep the others. "
        "E_Var compares how far rows spread with how far the two sets are apart; E_Wp is what it would cost "
        "to carry the ones over to the others.",
    ),
    "sharpness.svg": _Kind(
        "Bars of how sharp the loss is at each network's weights; the table below has the numbers.",
        "Sharpness: how much the loss rises when the weights take one small step in the worst direction, and "
        "how strongly it curves. High for deleted rows and low for remaining ones is what some methods "
        "aim at.",
    ),
}
_OF_ONE: Final = {
    "landscape": _Kind(
        "Contours of the loss around this network; the table below has the numbers.",
        "Loss landscape: the loss on deleted and on remaining rows when the weights move along two random "
        "directions, by up to half the length of the network's own filters. The cross is the network.",
    ),
    "features": _Kind(
        "Points for deleted, remaining and unseen rows in two dimensions; the table below sums them up.",
        "Feature map: what the network makes of rows before its last layer, in two dimensions. Distances in "
        "such a map mean little.",
    ),
}


def margins(pictures: Mapping[str, str]) -> Picture | None:
    """The picture that belongs to the main table."""
    found = pictures.get(MARGINS)
    return None if found is None else _picture(found, _MARGINS)


def papers(pictures: Mapping[str, str], figures: Mapping[str, Any]) -> Iterator[Picture]:
    """What the papers show, where there are such pictures: all networks together, then one by one."""
    for name, kind in _known():
        if name in pictures:
            yield _picture(pictures[name], kind, figure(figures, "tables", name))


def _known() -> Iterator[tuple[str, _Kind]]:
    yield from _COMPARING.items()
    for stem, kind in _OF_ONE.items():
        for network, title in NETWORKS.items():
            yield (
                f"{stem}-{network}.svg",
                _Kind(f"{title}: {kind.alt}", f"{title}. {kind.caption}"),
            )


def _picture(svg: str, kind: _Kind, numbers: Mapping[str, Any] | None = None) -> Picture:
    return Picture(
        data=base64.b64encode(svg.encode()).decode(),
        alt=kind.alt,
        caption=kind.caption,
        table=table("The numbers of the picture above", numbers) if numbers and numbers["rows"] else None,
    )
