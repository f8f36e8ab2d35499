from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import Asam, Finetune
from workers.data.batches import Rows
from workers.methods.finetune import finetune
from workers.methods.run import Run
from workers.nets.network import Network


def test_it_descends_on_the_rows_to_keep(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Callable[[Tensor, Rows], Tensor]
) -> None:
    """Six steps of SGD on R's batches, against a brute-force twin."""
    run = start(network=copy.deepcopy(two_layers))
    finetune(run, Finetune(steps=6, learning_rate=0.1, schedule="constant"))
    at = parameters_to_vector(two_layers.parameters()).detach().clone()
    velocity = torch.zeros_like(at)
    for step in range(6):
        velocity = 0.9 * velocity + brute_gradient(at, run.retain_batches(64).at(step)) + 5e-4 * at
        at = at - 0.1 * velocity
    torch.testing.assert_close(
        parameters_to_vector(run.network.parameters()).detach(), at, rtol=1e-8, atol=1e-11
    )


def test_the_rows_to_forget_are_never_read(start: Callable[..., Run], digits: Rows) -> None:
    """Whatever F is, the result is the same."""
    first, second = start(), start(forget=digits.take(slice(30, 50)))
    for run in (first, second):
        finetune(run, Finetune(steps=5, precision="fp32", objective=Asam(name="asam")))
    for mine, theirs in zip(
        first.network.state_dict().values(), second.network.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_a_step_costs_one_pass(start: Callable[..., Run]) -> None:
    """And two with a sharp objective."""
    assert finetune(start(), Finetune(steps=3)).passes == 3
    assert finetune(start(), Finetune(steps=3, objective=Asam(name="asam"))).passes == 6
