from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from app.jobs.params import TrainingSchedule
from workers.training.schedule import LearningRate


def _rates(schedule: TrainingSchedule, warmup_share: float = 0.0, steps: int = 10) -> list[float]:
    rate = LearningRate(peak=2.0, steps=steps, schedule=schedule, warmup_share=warmup_share)
    return [rate.at(step) for step in range(steps)]


def test_linear_falls_to_its_last_tenth() -> None:
    """Ten steps fall from the peak by a tenth each: the eleventh would be at 0."""
    assert _rates("linear") == pytest.approx([2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2])


def test_warm_up_rises_to_the_peak_and_then_falls() -> None:
    """With a fifth of ten steps to warm up: half, the peak, then eight equal steps down from the peak."""
    assert _rates("linear", 0.2) == pytest.approx([1.0, 2.0, *(2 * (1 - k / 8) for k in range(8))])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    """Half a cosine period."""
    assert _rates("cosine") == pytest.approx([1 + math.cos(math.pi * k / 10) for k in range(10)])


def test_constant_stays() -> None:
    """After the warm-up nothing changes."""
    assert _rates("constant", 0.1) == pytest.approx([2.0] * 10)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "step"])
def test_all_steps_may_be_warm_up(schedule: TrainingSchedule) -> None:
    """A share of 1 rises all the way; one step alone is at the peak."""
    assert _rates(schedule, 1.0) == pytest.approx([0.2 * k for k in range(1, 11)])
    assert _rates(schedule, 0.0, steps=1) == [2.0]


def test_step_falls_twice_to_a_tenth() -> None:
    """After half and three quarters of the steps that follow the warm-up."""
    assert _rates("step", 0.2) == pytest.approx([1.0, 2.0, *[2.0] * 4, *[0.2] * 2, *[0.02] * 2])


@pytest.mark.parametrize(("share", "steps"), [(0.3, 20), (0.25, 40), (0.15, 33)])
def test_one_cycle_is_that_of_pytorch(share: float, steps: int) -> None:
    """The rates of OneCycleLR with its default ends, step by step."""
    sgd = torch.optim.SGD(nn.Linear(1, 1, device="meta").parameters(), lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        sgd, max_lr=2.0, total_steps=steps, pct_start=share, cycle_momentum=False
    )
    for mine in _rates("one_cycle", share, steps):
        assert mine == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        sgd.step()
        if theirs.last_epoch + 1 < steps:
            theirs.step()
