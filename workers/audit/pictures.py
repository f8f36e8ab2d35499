"""The papers' figures as pictures, each with the table that says the same in numbers.

Pictures are single SVG elements with a title and a description for screen readers; the same figures give the
same bytes. Layouts of the figures: `workers.methods.landscape`, `workers.audit.feature_map`,
`workers.audit.entanglement` and `workers.methods.sharpness`, each without its outermost key. What was not
measured is said to be so in the picture, and is None in the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workers.audit.drawing import COLOURS, TITLES, described, drawing, svg
from workers.audit.outputs import FloatArray

Figures = Mapping[str, Any]
Cell = str | int | float | None

_SETS: Final = {"forget": "rows to forget", "retain": "remaining rows", "holdout": "rows never trained on"}
_MARKERS: Final = {"retain": "o", "holdout": "s", "forget": "^"}  # drawn in this order, F on top
_LEVELS = 12
_METHODS: Final = {"pca": "PCA", "umap": "UMAP"}
_SHARPNESS: Final = {
    "ascent": "rise over a SAM step, nats",
    "top_eigenvalue": "top Hessian eigenvalue",
}
_ONE_COLOUR = COLOURS["holdout"]  # where colours tell nothing


class Table(NamedTuple):
    """What a picture shows: the names of the columns, and rows of as many values."""

    header: list[str]
    rows: list[list[Cell]]


class _Bar(NamedTuple):
    """One bar; a value of None was not measured."""

    label: str
    colour: str
    value: float | None
    deviation: float | None = None


# --- the loss landscape -------------------------------------------------------------------------------


def landscape_picture(landscape: Figures) -> str:
    """The loss of F and of R around the network, one panel each, in filled contours of its own scale."""
    with drawing():
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        for panel, name in zip(figure.subplots(1, 2), ("forget", "retain"), strict=True):
            _contours(figure, panel, landscape["axis"], _numbers(landscape[name]))
            panel.set_title(f"{_SETS[name]}: loss", fontsize=9, loc="left")
            panel.set_xlabel("along the second direction", fontsize=8)
            panel.set_ylabel("along the first direction", fontsize=8)
            panel.tick_params(labelsize=7)
        element = svg(figure)
    return described(
        element,
        title="Loss landscape around the network",
        description=" ".join(
            ["Mean loss where the weights are moved along two random directions."]
            + [_range_of_loss(landscape, name) for name in ("forget", "retain")]
        ),
    )


def landscape_table(landscape: Figures) -> Table:
    """A row for each set and place along the first direction, a column for each along the second."""
    axis = landscape["axis"]
    return Table(
        ["set", "first direction", *(f"second {place:g}" for place in axis)],
        [
            [_SETS[name], place, *losses]
            for name in ("forget", "retain")
            for place, losses in zip(axis, landscape[name], strict=True)
        ],
    )


def _contours(figure: Figure, panel: Axes, axis: Sequence[float], losses: FloatArray) -> None:
    if len(axis) < 2 or not np.isfinite(losses).any():
        _not_measured(panel)
        return
    filled = panel.contourf(axis, axis, np.ma.masked_invalid(losses), _levels(losses), cmap="cividis")
    panel.plot([0], [0], marker="+", color="white", markersize=9, markeredgewidth=1.5)
    bar = figure.colorbar(filled, ax=panel, format="%.3g")
    bar.ax.tick_params(labelsize=7)


def _levels(losses: FloatArray) -> FloatArray:
    """Evenly spaced from the least to the largest loss, or over a hundredth of it where it hardly differs."""
    low, high = float(np.nanmin(losses)), float(np.nanmax(losses))
    levels: FloatArray = np.linspace(low, max(high, low + 0.01 * max(1.0, low)), _LEVELS + 1)
    return levels


def _range_of_loss(landscape: Figures, name: str) -> str:
    losses = _numbers(landscape[name])
    if not np.isfinite(losses).any():
        return f"The loss of the {_SETS[name]} was not measured."
    middle = len(landscape["axis"]) // 2
    here = landscape[name][middle][middle]
    at = "" if here is None else f"; at the network {here:.3g}"
    return f"{_SETS[name].capitalize()}: {np.nanmin(losses):.3g} to {np.nanmax(losses):.3g} nats{at}."


def _numbers(values: Sequence[Sequence[float | None]]) -> FloatArray:
    """None as NaN."""
    return np.array(values, dtype=np.float64)


# --- the feature map ----------------------------------------------------------------------------------


def feature_map_picture(feature_map: Figures | None) -> str:
    """Each row of the samples as a point, sets by colour and form."""
    with drawing():
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        panel = figure.subplots()
        if feature_map is None:
            _not_measured(panel)
        else:
            _points(panel, feature_map)
            figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8)
        element = svg(figure)
    return described(element, title="Feature map", description=_map_in_words(feature_map))


def feature_map_table(feature_map: Figures | None) -> Table:
    """A row for each set: how many points it has, where their centre is, and how far they lie about it."""
    points = {} if feature_map is None else feature_map["points"]
    rows: list[list[Cell]] = []
    for name in (name for name in _SETS if name in points):
        places = np.array([point[:2] for point in points[name]], dtype=np.float64).reshape(-1, 2)
        centre = places.mean(axis=0) if len(places) else None
        spread = None if centre is None else float(np.sqrt(((places - centre) ** 2).sum(axis=1).mean()))
        x, y = (None, None) if centre is None else centre.tolist()
        rows.append([_SETS[name], len(places), x, y, spread])
    return Table(["set", "rows", "centre, first axis", "centre, second axis", "spread"], rows)


def _points(panel: Axes, feature_map: Figures) -> None:
    for name, marker in _MARKERS.items():
        points = feature_map["points"].get(name)
        if not points:
            continue
        places = np.array([point[:2] for point in points])
        panel.plot(
            *places.T,
            marker,
            color=COLOURS[name],
            markersize=3.5,
            markeredgewidth=0,
            alpha=0.6,
            label=f"{len(points):,} {_SETS[name]}",
        )
    shares = feature_map["explained"] or (None, None)
    told = ["" if share is None else f" ({share:.0%} of the variance)" for share in shares]
    method = _METHODS[feature_map["method"]]
    panel.set_xlabel(f"{method} 1{told[0]}", fontsize=8)
    panel.set_ylabel(f"{method} 2{told[1]}", fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=7)


def _map_in_words(feature_map: Figures | None) -> str:
    if feature_map is None:
        return "The features were not measured."
    counts = ", ".join(
        f"{len(feature_map['points'][name]):,} {_SETS[name]}" for name in feature_map["points"]
    )
    return f"The network's features in two dimensions, by {_METHODS[feature_map['method']]}: {counts}."


# --- bars: entanglement and sharpness -----------------------------------------------------------------


def entanglement_picture(entanglement: Figures) -> str:
    """E_Var, as the share that is plotted, and E_Wp with its deviation, a bar for each network."""
    variance, transport = [], []
    for name, found in entanglement.items():
        moved = {"mean": None, "deviation": None} if found is None else found["transport"]
        share = None if found is None else found["variance_scaled"]
        variance.append(_Bar(_title(name), _ONE_COLOUR, share))
        transport.append(_Bar(_title(name), _ONE_COLOUR, moved["mean"], moved["deviation"]))
    return _bars_picture(
        {"E_Var, scaled": variance, "E_Wp": transport},
        title="Entanglement of the rows to forget with the remaining rows",
    )


def entanglement_table(entanglement: Figures) -> Table:
    """A row for each network."""
    rows: list[list[Cell]] = []
    for name, found in entanglement.items():
        cells: list[Cell] = [None] * 5
        if found is not None:
            moved = found["transport"]
            ratios = [found["variance"], found["variance_scaled"]]
            cells = [*ratios, moved["mean"], moved["deviation"], found["score"]]
        rows.append([_title(name), *cells])
    header = ["network", "E_Var", "E_Var, scaled", "E_Wp", "E_Wp, deviation", "entanglement score"]
    return Table(header, rows)


def sharpness_picture(sharpness: Figures) -> str:
    """The rise of the loss and the top eigenvalue, a bar for each network and set."""
    panels = {
        label: [
            _Bar(f"{_title(name)}: {_SETS[part]}", COLOURS[part], found[part][measure])
            for name, found in sharpness.items()
            for part in ("forget", "retain")
        ]
        for measure, label in _SHARPNESS.items()
    }
    return _bars_picture(panels, title="Sharpness of the loss at the network's weights")


def sharpness_table(sharpness: Figures) -> Table:
    """A row for each network and set."""
    measures = (*_SHARPNESS, "residual", "rows")
    return Table(
        ["network", "set", *_SHARPNESS.values(), "residual of the eigenvalue", "rows"],
        [
            [_title(name), _SETS[part], *(found[part][measure] for measure in measures)]
            for name, found in sharpness.items()
            for part in ("forget", "retain")
        ],
    )


def _bars_picture(panels: Mapping[str, Sequence[_Bar]], *, title: str) -> str:
    """Panels side by side with the same bars, the first at the top, each with its value beside it."""
    count = max(map(len, panels.values()))
    with drawing():
        figure = Figure(figsize=(7.2, 0.7 + 0.3 * max(count, 1)), layout="constrained")
        drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for panel, (label, bars) in zip(drawn, panels.items(), strict=True):
            _draw_bars(panel, label, bars)
        element = svg(figure)
    said = [
        f"{label}: {', '.join(f'{bar.label} {_value(bar)}' for bar in bars)}."
        for label, bars in panels.items()
    ]
    return described(element, title=title, description=" ".join(said))


def _draw_bars(panel: Axes, label: str, bars: Sequence[_Bar]) -> None:
    places = range(len(bars))
    lengths = [bar.value or 0.0 for bar in bars]
    panel.barh(
        places,
        lengths,
        color=[bar.colour for bar in bars],
        xerr=[bar.deviation or 0.0 for bar in bars],
        error_kw={"elinewidth": 1},
        height=0.7,
    )
    for place, bar in zip(places, bars, strict=True):
        end = max(0.0, (bar.value or 0.0) + (bar.deviation or 0.0))
        panel.annotate(
            _value(bar), (end, place), (3, 0), textcoords="offset points", va="center", fontsize=7.5
        )
    panel.set_yticks(places, [bar.label for bar in bars])
    panel.set_ylim(len(bars) - 0.4, -0.6)
    panel.axvline(0, color="black", linewidth=0.8)
    panel.margins(x=0.25)  # room for the values
    panel.set_title(label, fontsize=9, loc="left")
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(labelsize=8)
    panel.tick_params(axis="y", length=0)


def _value(bar: _Bar) -> str:
    if bar.value is None:
        return "not measured"
    return f"{bar.value:.3g}" + ("" if bar.deviation is None else f" ± {bar.deviation:.2g}")


def _title(network: str) -> str:
    return TITLES.get(network, network)


def _not_measured(panel: Axes) -> None:
    panel.set_axis_off()
    panel.text(0.5, 0.5, "not measured", ha="center", va="center", transform=panel.transAxes, fontsize=9)
