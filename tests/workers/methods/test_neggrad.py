from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import NegGrad, Plain, Sam
from workers.data.batches import Rows
from workers.methods.neggrad import neggrad
from workers.methods.run import Run
from workers.nets.network import Network

Brute = Callable[[Tensor, Rows], Tensor]


@pytest.mark.parametrize("sharpness_on", ["both", "retain"])
@pytest.mark.parametrize("objective", [Plain(), Sam(name="sam", rho=0.2)])
def test_it_descends_and_ascends_in_one_step(
    start: Callable[..., Run],
    two_layers: Network,
    brute_gradient: Brute,
    objective: Plain | Sam,
    sharpness_on: Literal["both", "retain"],
) -> None:
    """Five steps on alpha CE(R) - (1 - alpha) CE(F), plain and sharp, against a brute-force twin."""
    p = NegGrad(
        steps=5,
        alpha=0.7,
        learning_rate=0.05,
        objective=objective,
        forget_batch_size=9,
        sharpness_on=sharpness_on,
    )
    run = start(network=copy.deepcopy(two_layers))
    neggrad(run, p)
    at = parameters_to_vector(two_layers.parameters()).detach().clone()
    velocity = torch.zeros_like(at)
    for step in range(5):
        keep, forget = run.retain_batches(64).at(step), run.forget_batches(9).at(step)

        def gradient(w: Tensor, keep: Rows = keep, forget: Rows = forget) -> Tensor:
            return 0.7 * brute_gradient(w, keep) - 0.3 * brute_gradient(w, forget)

        update = gradient(at)
        if isinstance(objective, Sam) and sharpness_on == "both":
            update = gradient(at + 0.2 * update / update.norm())
        elif isinstance(objective, Sam):
            own = brute_gradient(at, keep)
            update = 0.7 * brute_gradient(at + 0.2 * own / own.norm(), keep) - 0.3 * brute_gradient(
                at, forget
            )
        velocity = 0.9 * velocity + update + 5e-4 * at
        at = at - 0.05 * (1 - step / 5) * velocity
    torch.testing.assert_close(
        parameters_to_vector(run.network.parameters()).detach(), at, rtol=1e-8, atol=1e-11
    )


def test_statistics_follow_the_batches_to_keep(start: Callable[..., Run]) -> None:
    """Nothing of F enters the running statistics: after a step they are those of one pass over R's batch."""
    run = start()
    plain = copy.deepcopy(run.network).train()
    plain(run.retain_batches(64).at(0).images)
    neggrad(run, NegGrad(steps=1, precision="fp32", objective=Sam(name="sam")))
    for mine, theirs in zip(run.network.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_step_costs_two_passes(start: Callable[..., Run]) -> None:
    """One over each batch; twice as many with a sharp objective."""
    assert neggrad(start(), NegGrad(steps=4)).passes == 8
    assert neggrad(start(), NegGrad(steps=4, objective=Sam(name="sam"))).passes == 16


def test_it_forgets_and_keeps(start: Callable[..., Run]) -> None:
    """Memorised wrong labels are forgotten, the other rows stay learned."""
    trace = neggrad(start(), NegGrad(steps=60, alpha=0.7, precision="fp32"))
    assert trace.curve[0]["forget_accuracy"] > 0.8
    assert trace.curve[-1]["forget_accuracy"] < 0.2
    assert trace.curve[-1]["retain_accuracy"] > 0.9
