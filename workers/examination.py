"""Looking at networks side by side: every figure of an audit, whatever the networks are and whoever asks.

`workers.auditing` brings the networks of a job here, and the drill ones whose truth it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import torch

from workers.answers import Answers, Rows, all_answers, key_of
from workers.audit.appearance import appearance
from workers.audit.artefact import artefact_faults
from workers.audit.entanglement import entanglement_figures
from workers.audit.feature_map import feature_map
from workers.audit.figures import Looks, audit_figures
from workers.audit.matching import MATCH_DISTANCE
from workers.audit.moved import moved_figures
from workers.audit.outputs import Networks, Sets
from workers.audit.relearn import MOST_ROWS, relearn
from workers.audit.relearning import Curve, relearning_figures
from workers.data.batches import RowSource
from workers.data.sampling import sampled_places
from workers.data.seeds import derived_seed
from workers.methods.landscape import Grid, landscape
from workers.methods.sharpness import Look, sharpness
from workers.monitor import Monitor
from workers.nets.network import Network

_SHOWN_ROWS: Final = 200  # of a set, where figures are drawn rather than judged
_GRID: Final = Grid(rows=_SHOWN_ROWS)
_LOOK: Final = Look(rows=100, iterations=10)


@dataclass(frozen=True)
class Exhibit:
    """A network to be looked at: a name that decides its answers, and how to have it as it was handed in."""

    name: str
    open: Callable[[], Network]


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Networks, and the rows that they are asked about.

    Attributes:
        original: before unlearning.
        unlearned: after it.
        references: trained on exactly R.
        rows: "retain" (or a sample of it), "forget", "holdout" and "test", and perhaps "triggered".
        about_rows: digests, or other names, of these rows.
        holdout_match: H holds other rows of the same people, or other rows of the same classes.
        class_distance: how far class shares of H and F may differ.
        learning_rate: that of the training that the networks come from.
        seed: decides every draw, but for the noise, which the rows decide.
    """

    original: Exhibit
    unlearned: Exhibit
    references: tuple[Exhibit, ...] = ()
    rows: Rows
    about_rows: tuple[str, ...]
    holdout_match: Literal["subject", "class"]
    class_distance: float = MATCH_DISTANCE
    learning_rate: float
    seed: int
    monitor: Monitor

    # --- what the networks answer ---------------------------------------------------------------------

    def measured(self, known: Answers) -> Networks:
        """The answers of every network. Those of the unlearned one are this examination's alone."""
        exhibits = (self.unlearned, self.original, *self.references)
        found: list[Sets] = []
        for number, exhibit in enumerate(exhibits):
            self.monitor.check_cancelled()
            self.monitor.progress("audit", number, len(exhibits))
            found.append(self._answers(exhibit, known))
        unlearned, original, *references = found
        if self.unlearned.name not in (exhibit.name for exhibit in exhibits[1:]):
            known.forget(self._key(self.unlearned))
        self.monitor.progress("audit", len(exhibits), len(exhibits))
        return Networks(original, unlearned, tuple(references))

    def _answers(self, exhibit: Exhibit, known: Answers) -> Sets:
        # The same noise whenever these rows are audited: what is known of a network can be used again.
        noise = derived_seed(0, "noise", *self.about_rows)
        return known.of(self._key(exhibit), lambda: all_answers(exhibit.open(), self.rows, seed=noise))

    def _key(self, exhibit: Exhibit) -> str:
        return key_of(exhibit.name, *self.about_rows)

    # --- figures --------------------------------------------------------------------------------------

    def figures(self, measured: Networks) -> dict[str, Any]:
        """The fast audit: `workers.audit.figures`, and {"moved": None | {...}, "artefact": {"faults": []}}.

        `workers.audit.moved` and `workers.audit.artefact` say what these are; a network that is built
        otherwise has not moved by any distance.
        """
        original, unlearned = self.original.open(), self.unlearned.open()
        faults = artefact_faults(original, unlearned)
        return {
            **audit_figures(
                measured,
                holdout_match=self.holdout_match,
                seed=self.seed,
                class_distance=self.class_distance,
                looks=Looks(appearance(self.rows["forget"]), appearance(self.rows["holdout"])),
            ),
            "moved": None if faults else moved_figures(original.body, unlearned.body),
            "artefact": {"faults": list(faults)},
        }

    def relearning(self) -> dict[str, Any] | None:
        """As `workers.audit.relearning` has it; None without a row to learn."""
        if not len(self.rows["forget"]):
            return None
        return relearning_figures(
            original=self._curve(self.original),
            unlearned=self._curve(self.unlearned),
            references=[self._curve(exhibit) for exhibit in self.references],
        )

    def _curve(self, exhibit: Exhibit) -> Curve:
        return relearn(
            exhibit.open(),
            self._relearned,
            learning_rate=self.learning_rate,
            seed=derived_seed(self.seed, "relearn"),
            monitor=self.monitor,
        )

    @cached_property
    def _relearned(self) -> RowSource:
        forget = self.rows["forget"]
        places = sampled_places(len(forget), MOST_ROWS, derived_seed(self.seed, "relearned"))
        return forget.take(torch.from_numpy(places).to(forget.index_device))

    def papers(self, measured: Networks) -> dict[str, Any]:
        """What the papers show: `entanglement`, `landscape`, `feature_map` and `sharpness`, by network."""
        seen = {name: self.rows[name] for name in ("forget", "retain")}
        shown: dict[str, dict[str, Any]] = {}
        for name, exhibit in self._named():
            sets, seed = measured.named[name], derived_seed(self.seed, "papers")
            ground = landscape(exhibit.open(), seen, grid=_GRID, seed=seed, monitor=self.monitor)
            shown[name] = {
                "entanglement": _entanglement(sets, np.random.default_rng(seed)),
                **ground,
                **feature_map(sets, rng=np.random.default_rng(seed), rows=_SHOWN_ROWS),
                "sharpness": sharpness(exhibit.open(), seen, look=_LOOK, seed=seed, monitor=self.monitor),
            }
        measures = ("entanglement", "landscape", "feature_map", "sharpness")
        return {of: {name: each[of] for name, each in shown.items()} for of in measures}

    def _named(self) -> Iterator[tuple[str, Exhibit]]:
        yield "original", self.original
        yield "unlearned", self.unlearned
        if self.references:
            yield "reference", self.references[0]


def _entanglement(sets: Sets, rng: np.random.Generator) -> Mapping[str, Any] | None:
    retain, forget = sets["retain"].features, sets["forget"].features
    if retain is None or forget is None:
        return None
    return entanglement_figures(retain, forget, rng=rng)
