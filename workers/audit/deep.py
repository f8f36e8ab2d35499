"""The deep audit: the network against several that were retrained without F.

Layout, besides what each function's own module says; without a reference every value is None.

    {"references": {"n": K, "accuracy": [{"retain" | "forget" | "test": rate}]},
     "calibrated": {"original" | "unlearned": None | {...}},              `calibration`
     "calibrated_difference": None | DIFFERENCE,                           unlearned - original, DeLong
     "calibrated_noisy": {"original" | "unlearned": None | {...}},        the same on noisy images of F and H
     "rmia": {"original" | "unlearned": None | {...}},                    `rmia`
     "divergence": {"original" | "unlearned":                             `divergence`
         {"forget" | "holdout": None | {...}}},
     "over_references": {"tug_of_war" | "tug_of_war_mia" | "average_gap": `tug_of_war.over_references`
         None | {...}}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from workers.audit.calibration import calibrated_figures, centred_scores
from workers.audit.divergence import divergence_figures
from workers.audit.outputs import Networks, SetName, Sets, variant
from workers.audit.rmia import rmia_figures
from workers.audit.statistics import paired_delong
from workers.audit.tug_of_war import (
    Accuracies,
    average_gap,
    over_references,
    tug_of_war,
    tug_of_war_mia,
)

_PLACES: Final[tuple[SetName, ...]] = ("forget", "holdout")
_SCORES: Final = {"tug_of_war": tug_of_war, "tug_of_war_mia": tug_of_war_mia, "average_gap": average_gap}
_CALIBRATED, _NOISY, _RMIA = 5, 6, 7  # streams of the seed, after those of fast.py


def deep_figures(networks: Networks, *, seed: int) -> dict[str, Any]:
    """What can be computed from the networks' answers, in the layout above; H as already matched."""
    original, references = networks.original, networks.references
    measured = {"original": original, "unlearned": networks.unlearned}

    def rng(stream: int) -> np.random.Generator:
        return np.random.default_rng((seed, stream))

    return {
        "calibrated": {
            name: calibrated_figures(sets, original=original, references=references, rng=rng(_CALIBRATED))
            for name, sets in measured.items()
        },
        "calibrated_difference": _difference(networks),
        "calibrated_noisy": {
            name: _noisy(sets, original, references, rng(_NOISY)) for name, sets in measured.items()
        },
        "rmia": {
            name: rmia_figures(sets, references=references, rng=rng(_RMIA)) for name, sets in measured.items()
        },
        "divergence": {
            name: {place: _divergence(sets, references, place) for place in _PLACES}
            for name, sets in measured.items()
        },
    }


def over_all(rated: Mapping[str, Accuracies | None], further: Sequence[Accuracies | None]) -> dict[str, Any]:
    """The references' accuracies, and the summarising scores over all of them.

    Args:
        rated: of "original", "unlearned" and perhaps "reference"; None where a rate was not measured.
        further: those of the references after the first.
    """
    first = [rated["reference"]] if "reference" in rated else []
    references = [each for each in (*first, *further) if each is not None]
    networks = {name: found for name in ("original", "unlearned") if (found := rated[name]) is not None}
    return {
        "references": {
            "n": len(references),
            "accuracy": [
                {"retain": each.retain, "forget": each.forget, "test": each.test} for each in references
            ],
        },
        "over_references": {
            name: over_references(score, networks, references) if len(networks) == 2 else None
            for name, score in _SCORES.items()
        },
    }


def _difference(networks: Networks) -> dict[str, float] | None:
    """How much less, or more, the centred attack finds in the unlearned network than in the original."""
    after, before = (
        centred_scores(sets, networks.references) for sets in (networks.unlearned, networks.original)
    )
    return paired_delong(after, before).figures if after and before else None


def _noisy(
    sets: Sets, original: Sets, references: Sequence[Sets], rng: np.random.Generator
) -> dict[str, Any] | None:
    found, before = variant(sets, "noisy"), variant(original, "noisy")
    others = [noisy for each in references if (noisy := variant(each, "noisy")) is not None]
    if found is None or before is None or len(others) < len(references):
        return None
    return calibrated_figures(found, original=before, references=others, rng=rng)


def _divergence(sets: Sets, references: Sequence[Sets], place: SetName) -> dict[str, Any] | None:
    return divergence_figures(sets[place], [each[place] for each in references])
