from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import L1Sparse, Sam
from workers.data.batches import Rows
from workers.methods.l1_sparse import l1_sparse
from workers.methods.run import Run
from workers.nets.network import Network


def test_it_descends_under_a_falling_penalty(
    start: Callable[..., Run],
    two_layers: Network,
    brute_gradient: Callable[[Tensor, Rows], Tensor],
    descend: Callable[..., Tensor],
) -> None:
    """Five SAM steps: the ascent looks at the loss alone, the subgradient joins after it."""
    p = L1Sparse(steps=5, l1=0.01, learning_rate=0.05, objective=Sam(name="sam", rho=0.2))
    run = start(network=copy.deepcopy(two_layers))
    l1_sparse(run, p)

    def gradient(w: Tensor, step: int) -> Tensor:
        batch = run.retain_batches(64).at(step)
        own = brute_gradient(w, batch)
        return brute_gradient(w + 0.2 * own / own.norm(), batch) + 0.01 * (1 - step / 5) * w.sign()

    expected = descend(parameters_to_vector(two_layers.parameters()).detach(), p, gradient)
    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-11)


def test_the_weights_become_smaller(start: Callable[..., Run]) -> None:
    """Their sizes sum up to less than without the penalty, and a step costs one pass."""
    sums: list[float] = []
    for weight in (0.0, 1e-3):
        run = start()
        trace = l1_sparse(run, L1Sparse(steps=60, l1=weight, precision="fp32"))
        assert trace.passes == 60
        sums.append(float(sum(weight.detach().abs().sum() for weight in run.network.parameters())))
    assert sums[1] < 0.95 * sums[0]
