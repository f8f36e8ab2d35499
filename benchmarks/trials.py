"""One method on one case, run and audited: a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.jobs.params import MethodParameters, method_parameters, plain_data
from benchmarks.cifar import Case
from benchmarks.records import Results
from workers import auditing, pipeline
from workers.answers import Answers
from workers.methods.curvature import NoStep
from workers.monitor import Silent
from workers.spec import Unlearned, UnlearnSpec
from workers.training.loop import Diverged

AGAIN = "retrain"  # the method that stands for a second retrained network
_KEPT = (
    "sets",
    "accuracy",
    "membership",
    "svc_confidence",
    "differences",
    "tug_of_war",
    "average_gap",
    "backdoor",
    "cost",
)


@dataclass(frozen=True)
class Trial:
    """A method, its parameters, and what of them is being tried.

    Attributes:
        method: By its name.
        fixed: Parameters that all of its trials share; the others are the defaults.
        tried: Those of this one.
        about: What else the row is found by.
    """

    method: str
    fixed: Mapping[str, Any]
    tried: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> MethodParameters:
        """All of them."""
        return method_parameters(self.method, {**self.fixed, **self.tried})


def measure(results: str, case: Case, trial: Trial, known: Answers) -> dict[str, Any]:
    """The row of a trial: audited against the case's retrained network, or without figures if it diverged."""
    setting = {
        **trial.about,
        "forget": case.kind,
        "seed": case.seed,
        "method": trial.method,
        "parameters": plain_data(trial.parameters),
        "objective": plain_data(case.task.recipe.objective),
        "original": case.original["weights"],
        "reference": case.reference["weights"],
    }
    rows = Results(results)
    if (row := rows.of(setting)) is None:
        row = {"setting": setting, "tried": dict(trial.tried), **_outcome(case, trial, known)}
        rows.add(row)
    return row


def _outcome(case: Case, trial: Trial, known: Answers) -> dict[str, Any]:
    spec = case.unlearning(trial.method, trial.parameters, case.reference["weights"])
    try:
        done = _again(case) if trial.method == AGAIN else _unlearned(case, spec)
    except (Diverged, NoStep) as fault:
        return {"figures": None, "fault": f"{type(fault).__name__}: {fault}"}
    figures = auditing.audit(replace(spec, done=done), case.store, Silent(), known=known).figures
    course = {name: value for name, value in done.course.items() if name != "curve"}
    return {"figures": {name: figures[name] for name in _KEPT if name in figures} | {"course": course}}


def _unlearned(case: Case, spec: UnlearnSpec) -> Unlearned:
    desk = case.desk(spec.method)
    desk.forget()
    return pipeline.unlearn(spec, case.store, desk)


def _again(case: Case) -> Unlearned:
    figures = case.again["figures"]
    return Unlearned(weights=case.again["weights"], seconds=figures["seconds"], passes=figures["passes"])
