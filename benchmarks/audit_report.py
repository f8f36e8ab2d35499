"""Tables of what the audit says of networks whose truth is known, from the committed rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.reports.questions import figure
from benchmarks import deep_audit, drill
from benchmarks.records import Results
from benchmarks.tables import table
from benchmarks.trials import AGAIN
from workers.audit.statistics import wilson

_NAMES: Mapping[str, str] = {"nothing": "untouched original", AGAIN: "retrained once more"}
_DEEP = (
    "network | verdict | failed by | ToW | centred AUC | noisy | row by row | probe excess | JS excess | AIN"
)
_DRILL = (
    "rows to forget | honest retrains that failed | untouched originals that failed, where the attack has "
    "power | published"
)


def deep() -> str:
    """A line for each network that was audited."""
    return table(_DEEP, (_line(row) for row in _fullest()))


def _fullest() -> list[dict[str, Any]]:
    """Of each candidate the row with the most shadows, in the order that they are listed in."""
    rows = sorted(Results(deep_audit.RESULTS), key=lambda row: int(row["setting"]["shadows"]))
    found = {row["setting"]["candidate"]: row for row in rows if row["setting"]["seed"] == 0}
    return [found[name] for name in deep_audit.CANDIDATES if name in found]


def _line(row: Mapping[str, Any]) -> list[str]:
    figures, name = row["figures"], row["setting"]["candidate"]
    areas = [
        figure(figures, *path)
        for path in (
            ("calibrated", "unlearned", "centred"),
            ("calibrated_noisy", "unlearned", "centred"),
            ("shadow_attack", "ulira"),
        )
    ]
    return [
        _NAMES.get(name, name),
        row["verdict"],
        ", ".join(row["beyond"]),
        f"{figures['tug_of_war']['absolute']:.3f}",
        *(_area(area) for area in areas),
        _points(figure(figures, "probe", "excess")),
        _number(figure(figures, "divergence", "unlearned", "forget", "excess"), ".3f"),
        _ain(figures["relearning"]),
    ]


def _area(found: Mapping[str, float] | None) -> str:
    return "" if found is None else f"{found['auc']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def _points(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    low, high = (f"{100 * found[end]:+.1f}" for end in ("low", "high"))
    return f"{100 * found['difference']:+.1f} [{low}, {high}]"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _ain(relearning: Mapping[str, Any] | None) -> str:
    if relearning is None:
        return ""
    if relearning["ain"] is not None:
        return f"{relearning['ain']:.2f}"
    return "" if relearning["ain_at_least"] is None else f"> {relearning['ain_at_least']:.2f}"


def drills() -> str:
    """For each kind and number of rows, how often the audit was wrong."""
    return "\n".join(
        f"**{title}**\n\n{table(_DRILL, _sizes(kind))}"
        for kind, title in (("canaries", "Canaries: rows with wrong labels"), ("ordinary", "Ordinary rows"))
    )


def _sizes(kind: str) -> Iterator[list[str]]:
    found = [each for row in Results(drill.RESULTS) for each in row["findings"] if each["kind"] == kind]
    for asked in (*drill.SIZES, None) if found else ():
        group = [each for each in found if asked in (None, each["asked"])]
        yield [_size(asked, group), *_rates(group)]


def _size(asked: int | None, group: Sequence[Mapping[str, Any]]) -> str:
    if asked is None:
        return "all together"
    rows = [each["rows"] for each in group]
    return str(asked) if min(rows) == asked else f"{min(rows)} to {max(rows)}"


def _rates(group: Sequence[Mapping[str, Any]]) -> list[str]:
    honest = [each for each in group if each["truth"] == "honest_retrain"]
    untouched = [each for each in group if each["truth"] == "untouched_original"]
    detected = [each for each in untouched if each["power"]]
    published = sum(bool(each["published_by"]) for each in untouched)
    return [_failed(honest), _failed(detected), f"{published} of {len(untouched)}"]


def _failed(group: Sequence[Mapping[str, Any]]) -> str:
    if not group:
        return ""
    k, n = sum(each["verdict"] == "fail" for each in group), len(group)
    low, high = wilson(k, n)
    return f"{k} of {n} ({100 * low:.1f} to {100 * high:.1f}%)"


def parts() -> dict[str, str]:
    """All tables by the names of their places in the page."""
    return {"audit deep": deep(), "audit drills": drills()}
