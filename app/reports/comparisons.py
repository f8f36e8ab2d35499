"""What a comparison of methods has come to: verdicts, derived here as for any audit, and a table as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.errors import NotFound
from app.jobs.policies import Thresholds
from app.reports.schemas import ComparisonView
from app.reports.verdict import judge
from app.tables import Job, JobKind, Model, ModelVersion

_Column = tuple[str, str, float, int]  # heading, measure, factor, decimals
_COLUMNS: tuple[_Column, ...] = (
    ("RA %", "retain_accuracy", 100, 2),
    ("FA %", "forget_accuracy", 100, 2),
    ("TA %", "test_accuracy", 100, 2),
    ("AUC", "centred_auc", 1, 3),
    ("MIA %", "svc_confidence", 100, 1),
    ("ToW", "tug_of_war", 1, 3),
    ("gap", "average_gap", 1, 3),
    ("cost", "cost_ratio", 1, 3),
)
_BACKDOOR: tuple[_Column, ...] = (  # on poisoned data
    ("ASR %", "attack_success", 100, 2),
    ("floor %", "attack_floor", 100, 2),
)
_WIDTH = 16
_LEGEND = """\
RA, FA, TA: accuracy on the rows that remain, that are forgotten, and of test. AUC: of the margin attack,
centred on the reference's. MIA: forgotten rows that the confidence attack calls non-members. ToW: tug of war.
gap: average gap. cost: seconds over those of retraining. +-: half of a 95% interval over the seeds."""
_BACKDOOR_LEGEND = """
ASR: test rows of other classes that the trigger has taken for the target. floor: the same rows without it."""


def view(session: Session, job: Job | None) -> ComparisonView:
    """A comparison as far as it has come. Raises NotFound if the job is none."""
    if job is None or job.kind is not JobKind.COMPARE:
        raise NotFound
    model = session.get_one(Model, job.model_id)
    version = session.get_one(ModelVersion, job.version_id)
    outcome, thresholds = job.outcome or {}, Thresholds(**job.parameters["thresholds"])
    rows = [
        {**row, "verdict": str(judge(row["figures"], thresholds).verdict) if row["figures"] else None}
        for row in outcome.get("rows", ())
    ]
    found: dict[int, Counter[str]] = {}
    for row in rows:
        if row["verdict"] is not None:
            found.setdefault(row["place"], Counter())[row["verdict"]] += 1
    return ComparisonView(
        job_id=job.id,
        state=job.state,
        reason=job.reason,
        model=model.name,
        version=version.number,
        methods=job.parameters["methods"],
        seeds=job.parameters["seeds"],
        rows=rows,
        table=[
            {**entry, "verdicts": dict(sorted(found.get(entry["place"], {}).items()))}
            for entry in outcome.get("table", ())
        ],
    )


def table(comparison: ComparisonView) -> str:
    """A line a method, in the order they were named: means over its runs so far, and verdicts."""
    total = len(comparison.methods) * comparison.seeds
    poisoned = any("attack_success" in entry for entry in comparison.table)
    columns = (*_COLUMNS, *_BACKDOOR) if poisoned else _COLUMNS
    head = "".join(f"{heading:>{_WIDTH}}" for heading, *_ in columns)
    runs = f"{len(comparison.rows)} of {total} runs"
    lines = [
        f"{comparison.model} version {comparison.version}: {comparison.state}, {runs}",
        f"{'':2} {'method':18} {'n':>3}{head}  verdicts",
        *(_line(entry, columns) for entry in comparison.table),
        _LEGEND + _BACKDOOR_LEGEND * poisoned,
    ]
    return "\n".join(lines)


def _line(entry: Mapping[str, Any], columns: Sequence[_Column]) -> str:
    cells = "".join(
        f"{_cell(entry.get(name), factor, places):>{_WIDTH}}" for _, name, factor, places in columns
    )
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in entry["verdicts"].items())
    failed = f"{entry['failures']} failed" if entry["failures"] else ""
    ends = ", ".join(filter(None, (verdicts, failed)))
    return f"{entry['place']:2} {entry['method']:18} {entry['runs']:3}{cells}  {ends}"


def _cell(measured: Mapping[str, Any] | None, factor: float, places: int) -> str:
    if measured is None:
        return "-"
    shown = f"{factor * measured['mean']:.{places}f}"
    if measured["low"] is None:
        return shown
    return f"{shown} +- {factor * (measured['high'] - measured['mean']):.{places}f}"
