"""Putting a report together, and judging it again: plain JSON data, every part named once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from app.jobs.policies import Policy, reported_policy
from app.reports.attestation import canonical_json
from app.reports.questions import figure, has_reference
from app.reports.verdict import Decision, Judgement, judge

REPORT_VERSION: Final = 1
_LIMITS: Final = (
    (
        "No test can prove that nothing remains. The audit says whether certain attacks found a trace; a "
        "stronger attack might find one where these did not."
    ),
    (
        "Only this version of this model was audited: not its earlier versions, copies, backups, caches or "
        "exports, not models derived from it, and not the stored data themselves."
    ),
    "Only the rows named in the requests were removed. Other rows may describe the same people.",
)
_ELSEWHERE: Final = (
    (("probe", "unlearned"), "in the network's inner layers, beyond a new last layer on top of them"),
    (("rounded", "int8"), "in weights stored otherwise, beyond 8 and 4 bits"),
    (("relearning",), "after further training, beyond a few steps on the deleted rows"),
)
_NOWHERE_ELSE: Final = (
    "The attacks see only what the network answers. Traces in its inner layers, or such that appear after "
    "further training or compression, were not looked for."
)
_ONE_REFERENCE: Final = (
    "The retrained network is one of many that training without these rows could have given; another random "
    "seed would differ a little."
)
_SEVERAL_REFERENCES: Final = (
    "The {} retrained networks are some of many that training without these rows could have given; other "
    "random seeds would differ a little."
)
_NO_REFERENCE: Final = "No network was retrained without these rows, so there was nothing to compare with."


@dataclass(frozen=True, kw_only=True)
class JobPart:
    """The job: `rung` counts the ladder's methods from 0; times are ISO 8601 in UTC."""

    id: str
    kind: str
    method: str
    parameters: Mapping[str, Any]
    seed: int
    rung: int
    started_at: str
    finished_at: str


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """The model: `version_after` is None, and `weights_after` unserved, where nothing was published."""

    name: str
    version_before: int
    version_after: int | None
    weights_before: str
    weights_after: str
    architecture: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """The rows: numbers of them and digests of their bitmaps, never sample IDs or subjects."""

    dataset: str
    version: int
    forget_rows: int
    retain_rows: int
    forget_digest: str
    retain_digest: str


def report_body(  # noqa: PLR0913 - one argument for each part of the report
    *,
    job: JobPart,
    model: ModelPart,
    data: DataPart,
    requests: int,
    policy: Policy,
    figures: Mapping[str, Any],
    judgement: Judgement,
    decision: Decision,
    environment: Mapping[str, Any],
    not_covered: Sequence[str] = (),
) -> dict[str, Any]:
    """The report as JSON-ready data, in the layout that app/reports/render.py describes.

    Args:
        requests: how many deletion requests the job served.
        figures: of the audit, with its `cost`.
        not_covered: limits of this job beyond those of every audit.

    Raises:
        ValueError: a figure is NaN or infinite.
    """
    body = {
        "report_version": REPORT_VERSION,
        "job": asdict(job),
        "model": asdict(model),
        "data": asdict(data),
        "requests": requests,
        "policy": asdict(policy),
        "figures": figures,
        "judgement": asdict(judgement),
        "publication": {**asdict(decision), "publish": decision.publish},
        "environment": environment,
        "not_covered": [*limits_of(figures), *not_covered],
    }
    plain: dict[str, Any] = json.loads(canonical_json(body))
    return plain


def limits_of(figures: Mapping[str, Any]) -> list[str]:
    """What an audit with these figures says nothing about."""
    return [*_LIMITS, _elsewhere(figures), _about_references(figures)]


def _elsewhere(figures: Mapping[str, Any]) -> str:
    """Where else traces may be, in view of where the audit looked."""
    tried = {text: figure(figures, *path) is not None for path, text in _ELSEWHERE}
    if not any(tried.values()):
        return _NOWHERE_ELSE
    places = [text if known else text.split(",")[0] for text, known in tried.items()]
    return f"Traces were not looked for {'; '.join(places)}."


def _about_references(figures: Mapping[str, Any]) -> str:
    if not has_reference(figures):
        return _NO_REFERENCE
    known = figure(figures, "references", "n") or 1
    return _ONE_REFERENCE if known == 1 else _SEVERAL_REFERENCES.format(known)


def judged_again(report: Mapping[str, Any]) -> Judgement:
    """The judgement that a report's own figures and policy support, for comparison with the one printed.

    Raises:
        pydantic.ValidationError: the report holds no valid policy.
    """
    return judge(report["figures"], reported_policy(report["policy"]).thresholds)
