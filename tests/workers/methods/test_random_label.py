from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import Plain, RandomLabel, SalUn, Sam
from workers.data.batches import Rows
from workers.data.seeds import generator
from workers.methods.random_label import drawn_labels, random_label, salun
from workers.methods.run import Run
from workers.nets.network import Network

Brute = Callable[[Tensor, Rows], Tensor]


def _relabelled(run: Run, step: int, among: Literal["other", "any"]) -> Rows:
    batch = run.forget_batches(9).at(step)
    return Rows(batch.images, drawn_labels(batch, 10, among, generator(run.seed, "labels", step)))


@pytest.mark.parametrize("among", ["other", "any"])
@pytest.mark.parametrize("objective", [Plain(), Sam(name="sam", rho=0.2)])
def test_it_learns_drawn_labels(
    start: Callable[..., Run],
    two_layers: Network,
    brute_gradient: Brute,
    descend: Callable[..., Tensor],
    objective: Plain | Sam,
    among: Literal["other", "any"],
) -> None:
    """Five steps on CE(R) + w CE(F, drawn labels) against a brute-force twin."""
    p = RandomLabel(
        steps=5, forget_weight=0.7, labels=among, objective=objective, forget_batch_size=9, learning_rate=0.05
    )
    run = start(network=copy.deepcopy(two_layers))
    random_label(run, p)

    def both(w: Tensor, step: int) -> Tensor:
        keep = run.retain_batches(64).at(step)
        return brute_gradient(w, keep) + 0.7 * brute_gradient(w, _relabelled(run, step, among))

    def gradient(w: Tensor, step: int) -> Tensor:
        update = both(w, step)
        return both(w + 0.2 * update / update.norm(), step) if isinstance(objective, Sam) else update

    expected = descend(parameters_to_vector(two_layers.parameters()).detach(), p, gradient)
    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-11)


def test_labels_are_drawn_anew_and_uniformly(mixed: Rows) -> None:
    """Published code leaves some data sets' labels as they are, or draws the true one every tenth time."""
    batch = Rows(mixed.images[:1].expand(9000, -1, -1, -1), torch.full((9000,), 3))
    first, second = (drawn_labels(batch, 10, "other", generator(0, "labels", step)) for step in range(2))
    counts = torch.bincount(first, minlength=10)
    assert counts[3] == 0
    # Nine classes, 1,000 each expected; 150 is five standard deviations.
    assert all(abs(int(count) - 1000) < 150 for label, count in enumerate(counts) if label != 3)
    assert 0.08 < (first == second).double().mean() < 0.15
    assert (drawn_labels(batch, 10, "any", generator(0, "labels", 0)) == 3).any()


def test_salun_moves_the_salient_weights_alone(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Brute, descend: Callable[..., Tensor]
) -> None:
    """A brute-force twin with the top half of the forget gradient; what is outside keeps its bits."""
    p = SalUn(steps=5, forget_batch_size=9, learning_rate=0.05, mask_fraction=0.4)
    run = start(network=copy.deepcopy(two_layers))
    salun(run, p)
    at = parameters_to_vector(two_layers.parameters()).detach()
    sizes = brute_gradient(at, run.forget.take(slice(None))).abs()
    mask = torch.zeros_like(at)
    mask[sizes.argsort(descending=True)[: round(0.4 * len(at))]] = 1

    def gradient(w: Tensor, step: int) -> Tensor:
        keep = run.retain_batches(64).at(step)
        return brute_gradient(w, keep) + 0.5 * brute_gradient(w, _relabelled(run, step, "other"))

    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, descend(at, p, gradient, mask), rtol=1e-8, atol=1e-11)
    assert torch.equal(actual[mask == 0], at[mask == 0])
    kept = torch.cat([part.flatten() for part in run.kept["mask"].values()])
    assert kept.dtype == torch.bool
    assert torch.equal(kept.double(), mask)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_masked_weights_keep_their_bits_under_any_optimiser(
    start: Callable[..., Run], optimiser: Literal["sgd", "adamw"]
) -> None:
    """Masking the gradient alone leaves weight decay and momentum to move them, as in published code."""
    run = start()
    before = [weight.detach().clone() for weight in run.network.parameters()]
    salun(run, SalUn(steps=20, optimiser=optimiser, weight_decay=0.1, precision="fp32", mask_fraction=0.2))
    for weight, old, mask in zip(run.network.parameters(), before, run.kept["mask"].values(), strict=True):
        assert torch.equal(weight[~mask], old[~mask])
        assert (weight[mask] != old[mask]).any() or not mask.any()


def test_statistics_follow_the_batches_to_keep(start: Callable[..., Run]) -> None:
    """Nothing of F enters the running statistics."""
    run = start()
    plain = copy.deepcopy(run.network).train()
    plain(run.retain_batches(64).at(0).images)
    random_label(run, RandomLabel(steps=1, precision="fp32"))
    for mine, theirs in zip(run.network.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs)


def test_it_forgets_and_keeps(start: Callable[..., Run]) -> None:
    """Memorised wrong labels are forgotten, the other rows stay learned."""
    trace = random_label(start(), RandomLabel(steps=80, learning_rate=0.02, precision="fp32"))
    assert trace.passes == 160
    assert trace.curve[0]["forget_accuracy"] > 0.5
    assert trace.curve[-1]["forget_accuracy"] < 0.3
    assert trace.curve[-1]["retain_accuracy"] > 0.9
