"""Tables of the pages, from rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workers.audit.comparison import interval


def mean(values: Sequence[float | None], digits: int, *, signed: bool = False) -> str:
    """The mean, and its 95% t-interval's half width if there are several values."""
    found = interval(values)
    if found is None or found["mean"] is None:
        return ""
    shown = f"{found['mean']:{'+' if signed else ''}.{digits}f}"
    return shown if found["high"] is None else f"{shown} ± {found['high'] - found['mean']:.{digits}f}"


def percent(values: Sequence[float | None], *, signed: bool = False) -> str:
    """The same of shares, in per cent."""
    return mean([None if value is None else 100 * value for value in values], 1, signed=signed)


def share(counts: Mapping[str, int]) -> float:
    """How many of n are correct."""
    return counts["correct"] / counts["n"]


def counted(runs: Sequence[object | None]) -> str:
    """How many runs there are, and how many of them diverged, which are None."""
    diverged = sum(run is None for run in runs)
    return f"{len(runs)}, {diverged} diverged" if diverged else str(len(runs))


def told(parameters: Mapping[str, object]) -> str:
    """Parameters by name."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in sorted(parameters.items()))


def table(titles: str, lines: Iterable[Sequence[str]]) -> str:
    """Markdown, under titles that a bar stands between."""
    rule = "|---" * (titles.count("|") + 1) + "|"
    return "\n".join([f"| {titles} |", rule, *(f"| {' | '.join(cells)} |" for cells in lines), ""])


def placed(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part between its mark, `<!-- name -->`, and the next end; ValueError without one."""
    for name, content in parts.items():
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        if not mark:
            raise ValueError(f"the page has no place for {name}")
        _, end, after = rest.partition("\n<!-- end -->")
        page = f"{before}{mark}\n{content}{end}{after}"
    return page


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return str(value).lower() if isinstance(value, bool) else str(value)
