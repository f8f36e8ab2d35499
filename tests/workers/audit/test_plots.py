from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np

from workers.audit.figures import audit_figures
from workers.audit.outputs import Networks, Sets
from workers.audit.plots import margin_histograms

MakeNetwork = Callable[..., Sets]


def texts(svg: str) -> str:
    return " ".join("".join(element.itertext()) for element in ElementTree.fromstring(svg).iter())


def test_shows_the_figures_it_belongs_to(make_network: MakeNetwork) -> None:
    """One panel a network, titled with the AUC that the figures give, and the numbers of rows compared."""
    original, unlearned = make_network(1, forget=6.0), make_network(2)
    figures = audit_figures(Networks(original, unlearned), holdout_match="class", seed=3)
    shown = texts(margin_histograms(Networks(original, unlearned), seed=3))
    for name in ("original", "unlearned"):
        assert f"AUC {figures['membership'][name]['auc']:.3f}" in shown
    assert "80 rows to forget" in shown
    assert f"{figures['holdout']['n']} comparable rows" in shown
    assert "retrained" not in shown


def test_same_inputs_same_bytes(make_network: MakeNetwork) -> None:
    """The picture can be stored by its content: it holds no date and no random identifier."""
    first, second = (
        margin_histograms(Networks(make_network(1), make_network(2), (make_network(3),)), seed=3)
        for _ in range(2)
    )
    assert first == second
    assert first.startswith("<svg")
    assert len(first) < 100_000


def test_says_what_was_not_measured(make_network: MakeNetwork) -> None:
    """A diverged network gets an empty panel that says so, and so does a picture without any measurement."""
    diverged = make_network(2)
    diverged["forget"].logits[0] = np.inf
    shown = texts(margin_histograms(Networks(make_network(1), diverged), seed=3))
    assert "after unlearning: not measured" in shown
    assert "before: AUC" in shown
    assert "AUC" not in texts(margin_histograms(Networks(diverged, diverged), seed=3))
