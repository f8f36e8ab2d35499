"""What all pictures share: colours, names of the networks, and how a figure becomes one SVG element."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

# Okabe & Ito: told apart by colour-blind readers; a picture tells them apart by form or place besides.
COLOURS: Final[Mapping[str, str]] = {"forget": "#d55e00", "holdout": "#0072b2", "retain": "#009e73"}
TITLES: Final[Mapping[str, str]] = {
    "original": "before",
    "unlearned": "after unlearning",
    "reference": "retrained without these rows",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Within it, figures are drawn and saved so that the same inputs give the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "expunge", "svg.fonttype": "none"}):
        yield


def svg(figure: Figure) -> str:
    """The figure as one SVG element, without a date. To be called within `drawing`."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def described(element: str, *, title: str, description: str) -> str:
    """The SVG element with a name and a description for screen readers, as its first children."""
    end = element.index(">")
    told = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    return f'{element[:end]} role="img">{told}{element[end + 1 :]}'
