"""Tables that a reader may unfold: class by class, the customary attacks, layer by layer, score by score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.reports.lines import ABSENT, NETWORKS, Table, in_words, measured_networks, percentage
from app.reports.questions import figure
from app.reports.wording import capitalised, count

Figures = Mapping[str, Any]

_SETS: Final = {"forget": "deleted rows", "retain": "remaining rows", "test": "new rows"}
_FEATURES: Final = {
    "correctness": "whether it is right",
    "confidence": "its probability of the label",
    "entropy": "how undecided it is",
    "modified_entropy": "how undecided it is, by the label",
    "probabilities": "all its probabilities",
}
_FITTED: Final = {"svc": "support vectors", "threshold": "best threshold"}
_SCORES: Final = {
    "tug_of_war": "Tug of war",
    "tug_of_war_mia": "Tug of war with the attack's share",
    "average_gap": "Average gap",
}


def table(caption: str, found: Mapping[str, Any]) -> Table:
    """{"header", "rows"} of strings, numbers and None as a table of text, numbers to three digits."""
    rows = [[_told(value) for value in row] for row in found["rows"]]
    return Table(caption, [str(name) for name in found["header"]], rows)


def _told(value: str | float | None) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:.3g}"
    return value if isinstance(value, str) else f"{value:,}"


def tables_by_class(figures: Figures) -> Iterator[Table]:
    """A table for each set; a row for each class that occurs in it."""
    known = figure(figures, "accuracy_by_class") or {}
    present = [name for name in measured_networks(figures) if name in known]
    for part, rows in _SETS.items():
        found = {name: {each["label"]: each for each in known[name][part]} for name in present}
        labels = sorted({label for classes in found.values() for label in classes})
        if labels:
            yield Table(
                f"{capitalised(rows)} classified right, with 95% intervals",
                ["class", "rows", *(NETWORKS[name] for name in present)],
                [_of_class(label, [found[name].get(label) for name in present]) for label in labels],
            )


def _of_class(label: int, entries: list[Figures | None]) -> list[str]:
    rows = next(f"{entry['n']:,}" for entry in entries if entry)
    return [str(label), rows, *(in_words(percentage(entry)) for entry in entries)]


def tables_of_customary(figures: Figures) -> Iterator[Table]:
    """What the attacks say of deleted rows, how often they are right elsewhere, and the loss regression."""
    known = {
        name: found
        for name in measured_networks(figures)
        if (found := figure(figures, "customary", name)) is not None
    }
    if not known:
        return
    header = ["attack", "looks at", *(NETWORKS[name] for name in known)]
    first = next(iter(known.values()))
    attacks = [(kind, feature) for kind in _FITTED for feature in first[kind]]
    example = first["svc"]["confidence"]
    yield Table(
        f"Share of {count(example['n'], 'deleted row')} taken for unseen, with 95% intervals",
        header,
        [_of_attack(kind, feature, known) for kind, feature in attacks],
    )
    yield Table(
        f"How often the attack is right on {count(example['attacker']['n'], 'other row')}; guessing: 50%",
        header,
        [_of_attack(kind, feature, known, "attacker") for kind, feature in attacks],
    )
    regressions = {name: found["loss_regression"] for name, found in known.items()}
    if any(regressions.values()):
        yield _of_regressions(regressions)


def _of_attack(kind: str, feature: str, known: Mapping[str, Figures], *more: str) -> list[str]:
    cells = (percentage(figure(found, kind, feature, *more)) for found in known.values())
    return [_FITTED[kind], _FEATURES.get(feature, feature), *map(in_words, cells)]


def _of_regressions(regressions: Mapping[str, Figures | None]) -> Table:
    told = [
        ABSENT if found is None else f"{100 * found['accuracy']:.1f}% ± {100 * found['deviation']:.1f}"
        for found in regressions.values()
    ]
    rows = next(found["n"] for found in regressions.values() if found)
    return Table(
        f"How often a regression on the loss tells deleted from new rows, {rows:,} of either; ± is the "
        f"spread over ten trials, no interval",
        ["", *(NETWORKS[name] for name in regressions)],
        [["right", *told]],
    )


def tables_of_moved(figures: Figures) -> Iterator[Table]:
    """The layers that moved most."""
    layers = figure(figures, "moved", "layers")
    if layers:
        yield Table(
            "Tensors that moved most, in shares of their length before",
            ["tensor", "moved by", "values changed"],
            [[each["name"], _share(each["relative"]), _share(each["changed"])] for each in layers],
        )


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.3g}%"


def tables_of_scores(figures: Figures) -> Iterator[Table]:
    """The scores that sum up accuracies, over all retrained networks instead of the first alone."""
    scores = figure(figures, "over_references") or {}
    known = {name: found for name, found in scores.items() if found}
    if known:
        references = next(iter(known.values()))["unlearned"]["n"]
        yield Table(
            f"Summarising scores, mean over {count(references, 'retrained network')} with 95% intervals; no "
            f"verdict rests on these",
            ["score", "Before", "After", "One retrained network by the others"],
            [_of_score(name, found) for name, found in known.items()],
        )


def _of_score(name: str, found: Figures) -> list[str]:
    means = [_mean(found["original"]), _mean(found["unlearned"])]
    among = ABSENT if found["references"] is None else f"{found['references']:.3f}"
    return [_SCORES.get(name, name), *means, among]


def _mean(found: Figures) -> str:
    if found["low"] is None:
        return f"{found['mean']:.3f}"
    return f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
