"""A drill's findings as text: a line for each truth and number of rows, and how often the audit was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from workers.audit.statistics import wilson
from workers.drill.course import Finding


def table(findings: Sequence[Finding]) -> str:
    """For each truth and number of rows the verdicts, by how many seeds, and the measures that failed it."""
    lines = [f"{'truth':20} {'rows':>5}  {'verdicts':34} {'AUC':>5} {'eps':>5}  failed by"]

    def place(finding: Finding) -> tuple[str, int]:
        return finding.truth, finding.asked

    for (truth, asked), group in groupby(sorted(findings, key=place), key=place):
        seeds = list(group)
        rows = "all" if any(finding.rows < asked for finding in seeds) else str(asked)
        lines.append(f"{truth:20} {rows:>5}  {_line(seeds)}")
    return "\n".join(lines)


def _line(group: Sequence[Finding]) -> str:
    verdicts = Counter(finding.verdict for finding in group)
    said = ", ".join(f"{verdict} {count}" for verdict, count in sorted(verdicts.items()))
    failed = Counter(measure for finding in group for measure in finding.beyond)
    by = ", ".join(f"{measure} {count}" for measure, count in failed.most_common())
    auc = _mean([finding.centred_auc for finding in group], "5.3f")
    epsilon = _mean([finding.epsilon for finding in group], "5.2f")
    wrong = "" if not any(finding.faults for finding in group) else "  <- WRONG"
    return f"{said:34} {auc:>5} {epsilon:>5}  {by}{wrong}"


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(sum(known) / len(known), form) if known else "-"


def rates(findings: Sequence[Finding]) -> str:
    """How often an honest retrain failed, and an untouched original that the attack detects did."""
    honest = [each for each in findings if each.truth == "honest_retrain"]
    detected = [each for each in findings if each.truth == "untouched_original" and each.power]
    untouched = [each for each in findings if each.truth == "untouched_original"]
    published = sum(bool(each.published_by) for each in untouched)
    return "\n".join(
        [
            _rate("Honest retrains that failed", honest, "fail"),
            _rate("Untouched originals that failed, where the attack has power", detected, "fail"),
            f"Untouched originals that would be published: {published} of {len(untouched)}.",
        ]
    )


def _rate(what: str, findings: Sequence[Finding], verdict: str) -> str:
    if not findings:
        return f"{what}: none was tried."
    k, n = sum(each.verdict == verdict for each in findings), len(findings)
    low, high = wilson(k, n)
    return f"{what}: {k} of {n}, {100 * k / n:.1f}% (95% interval {100 * low:.1f} to {100 * high:.1f})."
