from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from app.jobs.params import GradientAscent, NegGrad
from workers.methods.gradient_ascent import gradient_ascent
from workers.methods.neggrad import neggrad
from workers.methods.run import Run
from workers.monitor import Cancelled, Silent
from workers.training.loop import Diverged, Reading


def _weights(run: Run) -> list[Tensor]:
    return [tensor.clone() for tensor in run.network.state_dict().values()]


def test_without_unseen_rows_nothing_is_judged(start: Callable[..., Run]) -> None:
    """The last step's network is the result, and no target is claimed."""
    run = start()
    trace = neggrad(run, NegGrad(steps=10))
    assert run.judged == {}
    assert trace.readings == []


@pytest.mark.parametrize("keep", ["best", "nearest", "last"])
def test_the_state_that_the_readings_speak_for_is_kept(judged: Callable[..., Run], keep: Any) -> None:
    """A run that is granted no more steps than up to the kept one ends with the same bits."""
    common: dict[str, Any] = {"alpha": 0.5, "schedule": "constant", "precision": "fp32"}
    run = judged()
    neggrad(run, NegGrad(steps=40, readings=20, keep=keep, **common))
    readings: Any = run.judged["readings"]
    target = float(str(run.judged["target"]))
    worth: dict[str, Callable[[Reading], float]] = {
        "best": lambda reading: reading["score"],
        "nearest": lambda reading: -abs(reading["forget"] - target),
        "last": lambda reading: reading["step"],
    }
    best = max(readings[1:], key=worth[keep])
    assert run.judged["kept_step"] == best["step"]
    again = judged()
    neggrad(again, NegGrad(steps=int(best["step"]), readings=1, keep="last", **common))
    assert all(torch.equal(a, b) for a, b in zip(_weights(run), _weights(again), strict=True))


def test_the_score_is_that_of_a_tug_of_war(judged: Callable[..., Run]) -> None:
    """Of the last reading, by hand: distance of F from its target, and what was lost on R and unseen rows."""
    run = judged()
    neggrad(run, NegGrad(steps=30, alpha=0.4, precision="fp32", keep="last"))
    readings: Any = run.judged["readings"]
    first, last = readings[0], readings[-1]
    by_hand = 1 - abs(last["forget"] - float(str(run.judged["target"])))
    for name in ("retain", "validation"):
        by_hand *= 1 - max(0.0, first[name] - last[name])
    assert last["score"] == pytest.approx(by_hand)


def test_going_on_beyond_the_target_ends_early(judged: Callable[..., Run]) -> None:
    """With the network of the best step."""
    run = judged()
    parameters = GradientAscent(steps=400, learning_rate=2e-3, clip_norm=None, readings=40, precision="fp32")
    trace = gradient_ascent(run, parameters)
    assert trace.steps < 200
    readings: Any = run.judged["readings"]
    assert max(reading["score"] for reading in readings) > readings[-1]["score"] + 0.05


def test_a_divergence_is_said_and_costs_only_what_came_after_the_best(judged: Callable[..., Run]) -> None:
    """Without an earlier reading there is nothing to fall back on."""
    given: dict[str, Any] = {
        "learning_rate": 0.05,
        "schedule": "constant",
        "clip_norm": None,
        "precision": "fp32",
        "steps": 200,
    }
    run = judged()
    gradient_ascent(run, GradientAscent(readings=200, keep="last", **given))
    assert run.judged["diverged"] is True
    assert all(tensor.isfinite().all() for tensor in _weights(run))
    with pytest.raises(Diverged):
        gradient_ascent(judged(), GradientAscent(readings=1, **given))


def test_resuming_keeps_the_same_state(judged: Callable[..., Run], stops_after: Any) -> None:
    """The best state so far is in the checkpoint, with what it was judged against."""
    parameters = NegGrad(steps=40, alpha=0.5, precision="fp32", readings=8, rebound_steps=5)
    whole = judged()
    neggrad(whole, parameters)
    monitor = stops_after(27)
    with pytest.raises(Cancelled):
        neggrad(judged(monitor=monitor), parameters)
    resumed = judged(monitor=Silent(monitor.checkpoint))
    neggrad(resumed, parameters)
    assert resumed.judged == whole.judged
    assert all(torch.equal(a, b) for a, b in zip(_weights(whole), _weights(resumed), strict=True))


def test_the_rebound_is_measured_and_undone(judged: Callable[..., Run]) -> None:
    """The network that comes out has not taken the steps on R, and they are not the method's cost."""
    common: dict[str, Any] = {"steps": 30, "alpha": 0.5, "precision": "fp32"}
    measured, plain = judged(), judged()
    trace = neggrad(measured, NegGrad(rebound_steps=30, **common))
    assert trace.passes == neggrad(plain, NegGrad(**common)).passes
    assert measured.judged["rebound"] is not None
    assert plain.judged["rebound"] is None
    assert all(torch.equal(a, b) for a, b in zip(_weights(measured), _weights(plain), strict=True))
