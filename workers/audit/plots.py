"""The picture of the attack: how sure each network is of the rows to forget and of rows it never saw."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workers.audit.drawing import COLOURS, TITLES, drawing, svg
from workers.audit.matching import MATCH_DISTANCE, match_holdout
from workers.audit.membership import margin_scores
from workers.audit.outputs import Networks
from workers.audit.statistics import Scores, auc

_BINS = 40


def margin_histograms(networks: Networks, *, seed: int, class_distance: float = MATCH_DISTANCE) -> str:
    """Histograms of phi for F and the matched H under each network, as one SVG element.

    The same inputs give the same bytes. Arguments are those of `audit_figures`, so the rows are the same.
    """
    match = match_holdout(networks.original, seed=seed, class_distance=class_distance)
    scores = {name: margin_scores(match.applied_to(sets)) for name, sets in networks.named.items()}
    edges = _edges([pair for pair in scores.values() if pair is not None])
    with drawing():
        figure = Figure(figsize=(7.2, 1.9 * len(scores)), layout="constrained")
        panels = figure.subplots(len(scores), sharex=True, squeeze=False)[:, 0]
        for panel, (name, pair) in zip(panels, scores.items(), strict=True):
            _draw(panel, TITLES[name], pair, edges)
        measured = [panel for panel in panels if panel.has_data()]
        if measured:
            handles, labels = measured[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=8)
        panels[-1].set_xlabel("margin of the true label over all others (further right: surer)", fontsize=9)
        return svg(figure)


def _edges(pairs: list[Scores]) -> list[float]:
    """Bins over the middle 99% of all scores; what lies outside is counted in the outermost bins."""
    if not pairs:
        return [-1.0, 1.0]
    low, high = np.quantile(np.concatenate([part for pair in pairs for part in pair]), [0.005, 0.995])
    edges: list[float] = np.linspace(low - 1e-6, high + 1e-6, _BINS + 1).tolist()
    return edges


def _draw(panel: Axes, title: str, pair: Scores | None, edges: list[float]) -> None:
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.set_yticks([])
    panel.tick_params(labelsize=8)
    if pair is None:
        panel.set_title(f"{title}: not measured", fontsize=9, loc="left")
        return
    forget, holdout = (np.clip(part, edges[0], edges[-1]) for part in pair)
    panel.set_title(f"{title}: AUC {auc(pair):.3f}", fontsize=9, loc="left")
    panel.hist(
        forget,
        edges,
        density=True,
        color=COLOURS["forget"],
        alpha=0.55,
        label=f"{len(forget):,} rows to forget",
    )
    panel.hist(
        holdout,
        edges,
        density=True,
        histtype="step",
        linewidth=1.5,
        color=COLOURS["holdout"],
        label=f"{len(holdout):,} comparable rows never trained on",
    )
