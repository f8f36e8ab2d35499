from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import Asam, GradientAscent, Plain
from workers.data.batches import Rows
from workers.methods.gradient_ascent import gradient_ascent
from workers.methods.run import Run
from workers.nets.network import Network


@pytest.mark.parametrize("objective", [Plain(), Asam(name="asam", rho=0.2)])
def test_it_ascends_on_the_rows_to_forget(
    start: Callable[..., Run],
    two_layers: Network,
    brute_gradient: Callable[[Tensor, Rows], Tensor],
    descend: Callable[..., Tensor],
    objective: Plain | Asam,
) -> None:
    """Five steps on -CE(F), plain and adaptively sharp, against a brute-force twin."""
    p = GradientAscent(
        steps=5,
        learning_rate=0.05,
        objective=objective,
        forget_batch_size=9,
        clip_norm=None,
        precision="fp32",
    )
    run = start(network=copy.deepcopy(two_layers))
    gradient_ascent(run, p)

    def gradient(w: Tensor, step: int) -> Tensor:
        batch = run.forget_batches(9).at(step)
        update = -brute_gradient(w, batch)
        if isinstance(objective, Asam):
            shift = 0.2 * w.square() * update / (w.abs() * update).norm()
            update = -brute_gradient(w + shift, batch)
        return update

    expected = descend(parameters_to_vector(two_layers.parameters()).detach(), p, gradient)
    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-11)


def test_statistics_are_frozen(start: Callable[..., Run]) -> None:
    """The published code overwrites batch normalisation's running statistics by those of the forget set."""
    run = start()
    before = copy.deepcopy(run.network)
    trace = gradient_ascent(run, GradientAscent(steps=20, precision="fp32"))
    for mine, theirs in zip(run.network.buffers(), before.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert trace.passes == 20


def test_the_rows_to_keep_are_never_read(start: Callable[..., Run], mixed: Rows) -> None:
    """Other rows to keep make no difference."""
    first, second = start(), start(retain=mixed.take(slice(50, 60)))
    for run in (first, second):
        gradient_ascent(run, GradientAscent(steps=5, precision="fp32"))
    for mine, theirs in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_it_forgets(start: Callable[..., Run]) -> None:
    """Memorised wrong labels are given up, read with the statistics that the network is used with."""
    trace = gradient_ascent(start(), GradientAscent(steps=40, clip_norm=None, precision="fp32"))
    assert trace.curve[0]["forget_accuracy"] > 0.9
    assert trace.curve[-1]["forget_accuracy"] < 0.3
