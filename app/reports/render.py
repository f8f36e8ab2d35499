"""A report for people: one self-contained HTML page, and a table for a terminal.

Layout of a report (app/reports/contents.py puts it together):

    {"report_version": 1,
     "job": {"id", "kind", "method", "parameters": {}, "seed", "rung", "started_at", "finished_at"},
     "model": {"name", "version_before", "version_after": None if nothing was published,
               "weights_before", "weights_after", "architecture": {}},
     "data": {"dataset", "version", "forget_rows", "retain_rows", "forget_digest", "retain_digest"},
     "requests": how many the job served,
     "policy": {as app.jobs.policies.Policy},
     "figures": {as workers/audit/figures.py, and
                 "cost": {"seconds": {"unlearning", "audit", "reference"}, "passes": {}},
                 "tables": {name of a picture: {"header": [], "rows": [[]]}}},
     "judgement": {"verdict", "reasons": [], "checks": [{}], "decides_at", "sentence"},
     "publication": {"publish", "action", "network", "rule", "reason"},
     "environment": {},
     "not_covered": [sentences]}

Seconds may be None or missing; parameters, architecture, passes and environment are shown as they are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from app.jobs.params import METHODS
from app.reports.beside import short_lines
from app.reports.lines import ABSENT, NETWORKS, Line, bar, in_words, main_lines, measured_networks
from app.reports.pictures import margins, papers
from app.reports.questions import figure
from app.reports.sections import sections
from app.reports.wording import MEASURES, capitalised, count, rival, signed

_COLUMNS: Final = 100
_EXACT: Final = frozenset(name for name, info in METHODS.items() if info.exact)
_VERDICTS: Final = {
    "pass": "Passed",
    "fail": "Failed",
    "inconclusive": "Inconclusive",
    "not_valid": "Not valid",
}
_ACTIONS: Final = {
    "publish": "Published",
    "reject": "Not published",
    "await_approval": "Waiting for approval",
}
_BRACKETS: Final = "In brackets: 95% intervals."
_RANGES: Final = " A range is where further retrained networks would lie."
_ATTACK: Final = (
    "The attack looks at how sure the network is of each deleted row, and at how sure it is of comparable "
    "rows that it was never trained on. Its AUC is the chance that it puts a random deleted row above a "
    "random unseen one: 0.5 is guessing, and the further from 0.5, the easier deleted rows are to pick out."
)


def render_html(report: Mapping[str, Any], *, pictures: Mapping[str, str] | None = None) -> str:
    """The report as one page that loads nothing from anywhere.

    Args:
        pictures: the audit's, SVG by name; embedded as images, so that nothing in them can run. Those of
            which `app.reports.pictures` knows no place are left out.
    """
    figures, drawn = report["figures"], pictures or {}
    return _template().render(
        report=report,
        title=f"Unlearning report: {report['model']['name']}",
        verdict=_VERDICTS[report["judgement"]["verdict"]],
        action=_action(report),
        networks=_networks(report),
        lines=list(main_lines(figures)),
        checks=[_check_texts(check) for check in report["judgement"]["checks"]],
        attack=_ATTACK,
        summaries=list(_summaries(figures)),
        asked=_asked(report),
        time=_time(report),
        margins=margins(drawn),
        sections=list(sections(figures)),
        papers=list(papers(drawn, figures)),
        absent=ABSENT,
        flat=_flat,
    )


def render_text(report: Mapping[str, Any]) -> str:
    """The report's main figures as text of at most 100 columns."""
    judgement, publication = report["judgement"], report["publication"]
    networks, beside = _networks(report), short_lines(report["figures"])
    width = _COLUMNS - 22 * len(networks)
    table = [f"{'':{width}}" + "".join(f"{name:>22}" for name in networks)]
    table += [_columns(line, width, "not measured") for line in main_lines(report["figures"])]
    table += [_columns(line, width, ABSENT) for line in beside]
    paragraphs = [
        f"Verdict: {_VERDICTS[judgement['verdict']].upper()}. {judgement['sentence']}",
        *judgement["reasons"],
        f"{_action(report)} (rule: {publication['rule']}). {publication['reason']}",
        *(f"{label}: {value}. {explanation}" for label, value, explanation in _summaries(report["figures"])),
        _time(report),
    ]
    parts = [
        _wrapped(_asked(report)),
        "\n".join(table),
        _BRACKETS + _RANGES * any(line.cells[-1] for line in beside),
        _wrapped(_ATTACK),
    ]
    return (
        "\n\n".join([*parts, "\n".join(_wrapped(paragraph) for paragraph in paragraphs if paragraph)]) + "\n"
    )


def _columns(line: Line, width: int, absent: str) -> str:
    """A line of the table, its label in so many columns; a dash where a figure has no place."""
    label = textwrap.shorten(line.label, width - 1, placeholder="…")
    return f"{label:{width}}" + "".join(f"{in_words(cell) if cell else absent:>22}" for cell in line.cells)


@lru_cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("app.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["bar"] = bar
    return environment.get_template("report.html")


def _networks(report: Mapping[str, Any]) -> list[str]:
    return [NETWORKS[name] for name in measured_networks(report["figures"])]


def _check_texts(check: Mapping[str, Any]) -> dict[str, str]:
    measure = check["measure"]
    counts = {"both": "either way", "higher": "only above", "lower": "only below"}[check["direction"]]
    low, high = (signed(measure, check[bound]) for bound in ("low90", "high90"))
    return {
        "what": capitalised(MEASURES[measure]).rstrip(",")
        + (" (retrained network)" * (check["network"] == "reference")),
        "against": rival(measure, check["against"]),
        "difference": signed(measure, check["difference"]),
        "interval": f"{low} to {high}",
        "margin": f"{signed(measure, check['margin']).removeprefix('+')}, {counts}",
        "usual": _usual(check),
        "p": f"{check['adjusted_p']:.2g}",
        "outcome": check["outcome"],
        "decisive": "decides" if check["decisive"] else "reported only",
        "rows": f"{check['rows']:,}",
        "rows_to_decide": f"about {check['rows_to_decide']:,}" if check["rows_to_decide"] else "",
    }


def _usual(check: Mapping[str, Any]) -> str:
    """The range of retrained networks, where the figure is read by that; older reports have none."""
    if not check.get("usual"):
        return ""
    low, high = (signed(check["measure"], bound) for bound in check["usual"])
    return f"usual: {low} to {high}"


def _asked(report: Mapping[str, Any]) -> str:
    data, model = report["data"], report["model"]
    return (
        f"{count(report['requests'], 'deletion request')}: remove the influence of "
        f"{count(data['forget_rows'], 'row')} of the data set {data['dataset']} (version {data['version']}) "
        f"from the model {model['name']} (version {model['version_before']}), which was trained on them and "
        f"on {count(data['retain_rows'], 'other row')}. Method: {report['job']['method']}."
    )


def _action(report: Mapping[str, Any]) -> str:
    """What became of the network; a decision to publish may come too late."""
    if report["publication"]["publish"] and report["model"]["version_after"] is None:
        return "Not put into use: another version had taken the original's place meanwhile"
    if report["publication"]["publish"] and report["publication"]["network"] == "reference":
        return "Published: the retrained network"
    return _ACTIONS[report["publication"]["action"]]


def _time(report: Mapping[str, Any]) -> str:
    seconds = figure(report["figures"], "cost", "seconds") or {}
    spent, reference = seconds.get("unlearning"), seconds.get("reference")
    if not spent:
        return "The time was not measured: the network existed before this job."
    if report["job"]["method"] in _EXACT:
        return f"Training again without these rows took {spent:.1f} s."
    if not reference:
        return f"Unlearning took {spent:.1f} s. How long retraining takes was not measured."
    faster = f"{reference / spent:.1f} times as long" if spent < reference else "no longer than that"
    return f"Unlearning took {spent:.1f} s; retraining without these rows took {reference:.1f} s, {faster}."


def _summaries(figures: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, value and explanation of the scores that sum up the accuracies."""
    scores = figures["tug_of_war"]
    if scores is None:
        return
    normalised = "not defined" if scores["normalised"] is None else f"{scores['normalised']:.3f}"
    explanation = (
        f"1 is the retrained network's own. Doing nothing scores {scores['doing_nothing']:.3f}; divided by "
        f"that it is {normalised}. The signed form, which rewards over-forgetting: {scores['signed']:.3f}."
    )
    yield "Tug of war", f"{scores['absolute']:.3f}", explanation
    if figures["average_gap"] is not None:
        gap = f"{100 * figures['average_gap']:.1f} points"
        yield "Average gap", gap, "The mean distance from the retrained network in the percentages above."


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested data as pairs of a dotted name and a text."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield from _flat({str(place): entry for place, entry in enumerate(value)}, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value in (None, {}, []) else str(value)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _COLUMNS)
