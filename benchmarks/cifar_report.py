"""The page of results: tables and a picture of the comparison on CIFAR-10, from the committed rows.

    .venv/bin/python -m benchmarks.cifar_report

Writes docs/cifar_methods.svg and puts the tables between the marks in docs/results.md. A test says whether
the page is what the rows say.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from app.reports.questions import attack_has_power, finds_less
from benchmarks import audit_report, backdoor_report, cost_report, sparsity_report
from benchmarks.cifar import RETRAIN_PASSES, ForgetSet
from benchmarks.cifar_methods import ABLATIONS, BUDGETS, ENTRIES
from benchmarks.records import Results
from benchmarks.tables import mean, percent, placed, table, told
from workers.audit.comparison import interval, measures

DOCS = Path(__file__).parent.parent / "docs"
PICTURE = "cifar_methods.svg"
YARDSTICK: Final = "sharp_minmax"  # what others are compared with, seed by seed
_COLUMNS = "method | time | RA | FA | TA | ToW | ToW against ours | centred AUC | pass / open / fail"
_ABLATED: Final = 0.10  # the budget that the ablations were run at
_LADDER_TITLES = "method | budget | runs | published | own time | expected cost, ladder"
_KINDS: Final[Mapping[ForgetSet, str]] = {
    "high": "the 500 rows that were memorised most",
    "mid": "500 rows in the middle",
    "low": "the 500 rows that were memorised least",
    "class": "all 1,018 rows of a class",
}


@dataclass(frozen=True)
class Group:
    """The runs of one method at one budget, by seed, and what its steps cost; None where one diverged."""

    name: str
    runs: Mapping[int, Mapping[str, Any] | None]
    pace: Mapping[str, float] | None

    @property
    def figures(self) -> dict[int, Mapping[str, Any]]:
        """Of the runs that did not diverge."""
        return {seed: figures for seed, figures in self.runs.items() if figures is not None}

    def values(self, name: str) -> dict[int, float | None]:
        """A measure by seed."""
        return {seed: measures(figures)[name] for seed, figures in self.figures.items()}

    @property
    def share(self) -> float | None:
        """Of retraining's time: start, steps and readings in training steps, over those of a retraining."""
        if self.pace is None or not self.figures:
            return None
        costs: list[float] = [
            self.pace["start"]
            + self.pace["step"] * figures["course"]["steps"]
            + self.pace["reading"] * len(figures["course"]["readings"])
            for figures in self.figures.values()
        ]
        return sum(costs) / len(costs) / RETRAIN_PASSES

    @property
    def published(self) -> int:
        """How many runs the default policy would publish."""
        return sum(
            run["verdict"] == "pass"
            or (run["verdict"] == "inconclusive" and attack_has_power(run) and finds_less(run))
            for run in self.figures.values()
        )

    @property
    def ladder(self) -> float | None:
        """The mean cost of the method and of retraining where it fails, in retrainings."""
        return None if self.share is None else self.share + 1 - self.published / len(self.runs)


def groups(kind: ForgetSet, budget: float, names: Iterable[str] = ENTRIES) -> list[Group]:
    """What there is at a budget of these methods, in their order."""
    paces = {row["setting"]["entry"]: row for row in Results("cifar_pace")}
    found: dict[str, dict[int, Mapping[str, Any] | None]] = {}
    for row in Results("cifar_methods"):
        setting = row["setting"]
        if (setting["forget"], setting["budget"]) == (kind, budget):
            found.setdefault(setting["entry"], {})[setting["seed"]] = row["figures"]
    return [Group(name, found[name], paces.get(name)) for name in names if name in found]


def compared(chosen: Sequence[Group]) -> str:
    """One line a method, and one for doing nothing: means over seeds, 95% t-intervals over them."""
    ours = next((group.values("tug_of_war") for group in chosen if group.name == YARDSTICK), {})
    nothing = [f["tug_of_war"]["doing_nothing"] for f in chosen[0].figures.values()] if chosen else []
    first = ["nothing", "0%", "", "", "", mean(nothing, 3), "", "", ""]
    return table(_COLUMNS, [first, *(_line(group, ours) for group in chosen)])


def _line(group: Group, ours: Mapping[int, float | None]) -> list[str]:
    tow = group.values("tug_of_war")
    pairs = [
        own - other for seed, own in tow.items() if own is not None and (other := ours.get(seed)) is not None
    ]
    verdicts = Counter("fail" if run is None else run["verdict"] for run in group.runs.values())
    return [
        group.name,
        "" if group.share is None else f"{group.share:.1%}",
        *(percent(list(group.values(f"{part}_accuracy").values())) for part in ("retain", "forget", "test")),
        mean(list(tow.values()), 3),
        "" if group.name == YARDSTICK else mean(pairs, 3, signed=True),
        mean(list(group.values("centred_auc").values()), 3),
        f"{verdicts['pass']} / {verdicts['inconclusive'] + verdicts['not_valid']} / {verdicts['fail']}",
    ]


def markdown() -> str:
    """All tables."""
    parts: list[str] = []
    for budget in BUDGETS:
        if chosen := groups("random", budget):
            seeds = max(len(group.runs) for group in chosen)
            parts += [f"### {budget:.0%} of retraining, {seeds} seeds", "", compared(chosen)]
    for kind, words in _KINDS.items():
        for budget in BUDGETS:
            if chosen := groups(kind, budget):
                parts += [f"### {words[0].upper()}{words[1:]}, {budget:.0%}", "", compared(chosen)]
    return "\n".join(parts)


def ablated() -> str:
    """`sharp_minmax` as searched, and with one thing changed."""
    return compared(groups("random", _ABLATED, [YARDSTICK, *ABLATIONS]))


def publishing() -> str:
    """What a method costs in retrainings, with the retraining where it fails; the cheapest first.

    Of the methods that were published at all: the default policy publishes what did not fail.
    """
    found = [(budget, group) for budget in BUDGETS for group in groups("random", budget)]
    ladders = [(group.ladder, budget, group) for budget, group in found if group.published]
    return table(
        _LADDER_TITLES,
        [
            [group.name, f"{budget:.0%}", str(len(group.runs)), str(group.published)]
            + ["" if share is None else f"{share:.1%}" for share in (group.share, cost)]
            for cost, budget, group in sorted(ladders, key=lambda of: of[0] or math.inf)
        ],
    )


def searched() -> str:
    """How well the best setting of each method did by its own measure, and which one it is."""
    scores: dict[str, list[tuple[float, str]]] = {}
    for row in Results("cifar_search"):
        score = row["figures"]["kept"]["score"]
        scores.setdefault(row["setting"]["entry"], []).append((score, told(row["drawn"])))
    lines: list[list[str]] = []
    for name in ENTRIES:
        if tried := sorted(scores.get(name, [])):
            middle = median(score for score, _ in tried)
            lines.append(
                [
                    name,
                    str(len(tried)),
                    f"{tried[-1][0]:.3f}",
                    f"{middle:.3f}",
                    tried[-1][1] or "the defaults",
                ]
            )
    return table("method | settings | best score | median | the best", lines)


def expectations() -> str:
    """What methods expected of F before their first step, and what the retrained networks came to."""
    found: dict[tuple[ForgetSet, int], tuple[float, float]] = {}
    for row in Results("cifar_methods"):
        if (figures := row["figures"]) is not None:
            reference = figures["accuracy"]["reference"]["forget"]["rate"]
            place = (row["setting"]["forget"], row["setting"]["seed"])
            found[place] = (figures["course"]["target"], reference)
    lines = [
        [kind, str(seed), f"{target:.1%}", f"{reference:.1%}"]
        for (kind, seed), (target, reference) in sorted(found.items(), key=_order)
    ]
    return table("F | seed | expected accuracy on F | of the retrained network", lines)


def _order(entry: tuple[tuple[ForgetSet, int], object]) -> tuple[int, int]:
    kind, seed = entry[0]
    return (["random", *_KINDS].index(kind), seed)


def picture() -> str:
    """ToW against the share of retraining's time, a line a method, as SVG."""
    with mpl.rc_context({"svg.hashsalt": "expunge", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8.0, 4.6), layout="constrained")
        panel = figure.subplots()
        for place, name in enumerate(ENTRIES):
            points = [
                (100 * group.share, _centre(group))
                for budget in BUDGETS
                for group in groups("random", budget)
                if group.name == name and group.share is not None
            ]
            if points:
                style = "-" if name.startswith(("sharp", "neggrad")) else ":"
                marker = "osv^D<>pP*XhH"[place]
                panel.plot(*zip(*points, strict=True), style, marker=marker, label=name, markersize=5)
        panel.set_xlabel("share of retraining's time, %")
        panel.set_ylabel("tug of war (1: as retrained)")
        if panel.has_data():
            panel.legend(fontsize=7, ncols=2, frameon=False)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        return drawn.getvalue()


def _centre(group: Group) -> float:
    found = interval(list(group.values("tug_of_war").values()))
    return float("nan") if found is None or found["mean"] is None else found["mean"]


def page() -> str:
    """docs/results.md with the tables as the rows have them."""
    text = (DOCS / "results.md").read_text()
    parts = {
        "cifar search": searched(),
        "cifar methods": markdown(),
        "cifar ablations": ablated(),
        "cifar ladders": publishing(),
        "cifar expectations": expectations(),
        "training cost": cost_report.steps(),
        "training loops": cost_report.loops(),
    }
    others = sparsity_report.parts() | backdoor_report.parts() | audit_report.parts()
    return placed(text, parts | others)


def main() -> None:
    """Write the picture and the tables."""
    (DOCS / PICTURE).write_text(picture())
    (DOCS / "results.md").write_text(page())


if __name__ == "__main__":
    main()
