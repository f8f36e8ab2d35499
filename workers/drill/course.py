"""A drill from beginning to end: every truth on every deletion, judged as a job would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

import numpy as np
import torch

from app.jobs.policies import Policy, PublishWhen
from app.reports.questions import attack_has_power, figure
from app.reports.verdict import Judgement, judge, publish_decision
from workers.answers import Answers
from workers.audit.calibration import centred_scores
from workers.audit.epsilon import epsilon_figures
from workers.audit.outputs import Networks
from workers.data.seeds import derived_seed
from workers.drill.expected import Kind, Truth, expectation
from workers.drill.stage import Canaries, Recipe, Stage
from workers.drill.truths import audited_rows, stand_in
from workers.examination import Examination, Exhibit
from workers.monitor import Silent
from workers.nets.network import Network

_RULES: Final[tuple[PublishWhen, ...]] = ("passed", "not_failed")
_DELTA = 1e-5
_GUESSED = 0.5  # the share of the canaries that the one-run attack guesses on


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the audit said of one truth; `faults` say what of it is wrong, and are none if nothing is."""

    truth: Truth
    kind: Kind
    asked: int  # rows to forget, at most
    rows: int  # those there were
    seed: int
    verdict: str
    expected: tuple[str, ...]
    power: bool
    published_by: tuple[str, ...]
    beyond: tuple[str, ...]  # the measures that failed it
    centred_auc: float | None
    epsilon: float | None  # one-run lower bound, where all included canaries were forgotten
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Which truths, with how many rows of which kind."""

    truths: tuple[Truth, ...]
    kind: Kind
    sizes: tuple[int, ...]


def run(recipe: Recipe, plan: Plan, seeds: Sequence[int], *, processes: int) -> Iterator[Finding]:
    """Every finding, a seed at a time, in the order of the seeds, whatever the number of processes."""
    play = partial(_play, recipe, plan)
    if processes == 1:
        for seed in seeds:
            yield from play(seed)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for findings in pool.map(play, seeds):
            yield from findings


def _play(recipe: Recipe, plan: Plan, seed: int) -> list[Finding]:
    torch.set_num_threads(1)
    canaries, trained = Canaries.drawn(recipe, plan.kind, seed), dict[str, Network]()
    findings: list[Finding] = []
    for size in plan.sizes:
        stage = Stage(recipe, canaries, plan.kind, size, seed, trained)
        known = Answers()
        findings += [examine(stage, truth, known) for truth in plan.truths]
    return findings


def examine(stage: Stage, truth: Truth, known: Answers) -> Finding:
    """Audit one network whose truth is known, and judge it by the default policy."""
    candidate = stand_in(stage, truth)
    room = Examination(
        original=Exhibit("original", stand_in(stage, "untouched_original")),
        unlearned=Exhibit(f"candidate {truth}", candidate),
        references=tuple(
            Exhibit(f"reference {number}", lambda network=network: network)  # type: ignore[misc]
            for number, network in enumerate(stage.references)
        ),
        rows=audited_rows(stage),
        about_rows=(stage.recipe.name, stage.kind, str(stage.seed), str(len(stage.forget))),
        holdout_match="subject",  # a coin alone tells F from H
        learning_rate=stage.recipe.training.learning_rate,
        seed=derived_seed(stage.seed, "audit", stage.size),
        monitor=Silent(),
    )
    measured = room.measured(known)
    figures = {**room.figures(measured), "relearning": room.relearning()}
    return _judged(stage, truth, figures, measured)


def _judged(stage: Stage, truth: Truth, figures: dict[str, Any], measured: Networks) -> Finding:
    policy = Policy()
    judgement = judge(figures, policy.thresholds)
    published = tuple(rule for rule in _RULES if _publishes(judgement, figures, rule))
    right = expectation(truth, stage.kind, stage.size)
    faults = []
    if judgement.verdict not in right.verdicts:
        faults.append(
            f"the verdict is {judgement.verdict}, and should be {' or '.join(sorted(right.verdicts))}"
        )
    if published and not right.publishable:
        faults.append(f"it would be published by {' and '.join(published)}")
    return Finding(
        truth=truth,
        kind=stage.kind,
        asked=stage.asked,
        rows=stage.size,
        seed=stage.seed,
        verdict=str(judgement.verdict),
        expected=tuple(sorted(right.verdicts)),
        power=attack_has_power(figures),
        published_by=published,
        beyond=_beyond(judgement, figures),
        centred_auc=figure(figures, "calibrated", "unlearned", "centred", "auc"),
        epsilon=_epsilon(stage, measured),
        faults=tuple(faults),
    )


def _publishes(judgement: Judgement, figures: dict[str, Any], rule: PublishWhen) -> bool:
    decision = publish_decision(
        judgement, figures, publish_when=rule, exact=False, last_rung=True, prefer_exact=False
    )
    return decision.publish


def _beyond(judgement: Judgement, figures: dict[str, Any]) -> tuple[str, ...]:
    built = ("artefact",) if figure(figures, "artefact", "faults") else ()
    return built + tuple(
        check.measure for check in judgement.checks if check.decisive and check.outcome == "beyond"
    )


def _epsilon(stage: Stage, measured: Networks) -> float | None:
    """A lower bound on the epsilon of training and unlearning together, by the coins of this very run."""
    if stage.size < len(stage.canaries.included):
        return None
    scores = centred_scores(measured.unlearned, measured.references)
    if scores is None:
        return None
    included = np.repeat([True, False], [len(part) for part in scores])
    found = epsilon_figures(
        np.concatenate(scores),
        included,
        guesses=2 * round(_GUESSED * len(included) / 2),
        delta=_DELTA,
        rng=np.random.default_rng(derived_seed(stage.seed, "guesses")),
    )
    return None if found is None else found["low"]


def plain(finding: Finding) -> dict[str, Any]:
    """The finding as JSON-ready data."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(finding).items()
    }
