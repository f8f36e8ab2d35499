from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import SharpMinMax
from workers.data.batches import Rows
from workers.methods.masks import forget_mask
from workers.methods.run import Run
from workers.methods.sharp_minmax import sharp_minmax
from workers.nets.network import Network
from workers.training.gradients import Differentiable

Brute = Callable[[Tensor, Rows], Tensor]
Gradient = Callable[[Tensor], Tensor]
SWITCHES = [
    {"adaptive": adaptive, "perturb": perturb, "mask_end": end, "sharpness_weight": weight}
    for adaptive in (True, False)
    for perturb in ("own", "all")
    for end in ("top", "bottom")
    for weight in (1.0, 0.4)
] + [
    {"ascent": "momentum", "adaptive": adaptive, "sharpness_weight": weight}
    for adaptive in (True, False)
    for weight in (1.0, 0.4)
]


PUBLISHED: dict[str, Any] = {"keeps": "rest", "ascent": "gradient", "ceiling": "none", "rho": 0.5}
SHORT: dict[str, Any] = {"precision": "fp32", "steps": 5, "retain_batch_size": 32, "learning_rate": 0.05}


def _parameters(**given: Any) -> SharpMinMax:
    """The paper's method, but for what is given."""
    return SharpMinMax(**{**SHORT, **PUBLISHED, "mask_fraction": 0.1, "forget_batch_size": 16, **given})


def _half_step(
    at: Tensor, mask: Tensor, gradient: Gradient, sign: int, p: SharpMinMax, momentum: Tensor
) -> Tensor:
    """Section 4 on flat vectors: eps, u = g + s lambda (g_hat - g), then the mask over u and decay."""
    scale = at.abs() if p.adaptive else torch.ones_like(at)

    def shift(ascent: Tensor) -> Tensor:
        length: Tensor = (scale * ascent).norm() + 1e-12
        return ascent * scale.square() * (p.rho / length)

    if p.ascent == "momentum":
        combined = gradient(at + sign * p.sharpness_weight * shift(momentum))
    else:
        own = gradient(at)
        ahead = gradient(at + shift(own * mask if p.perturb == "own" else own))
        combined = own + sign * p.sharpness_weight * (ahead - own)
    return mask * (combined + p.weight_decay * at)


def _marked(gradient: Tensor, p: SharpMinMax) -> Tensor:
    marked = torch.zeros_like(gradient)
    order = gradient.abs().argsort(descending=p.mask_end == "top")
    marked[order[: round(p.mask_fraction * len(gradient))]] = 1
    return marked


def _brute_force(network: Network, run: Run, gradient: Brute, p: SharpMinMax) -> Tensor:
    """The whole method as a reader of the paper would write it down, on one flat vector of weights."""
    at = parameters_to_vector(network.parameters()).detach().clone()
    forgets = _marked(gradient(at, run.forget.take(slice(None))), p)
    retain, forget = run.retain_batches(p.retain_batch_size), run.forget_batches(p.forget_batch_size)
    keep_velocity, forget_velocity = torch.zeros_like(at), torch.zeros_like(at)
    for step in range(p.steps):
        rate = p.learning_rate * (1 - step / p.steps)

        def keeping(w: Tensor, step: int = step) -> Tensor:
            return p.alpha * gradient(w, retain.at(step))

        def forgetting(w: Tensor, step: int = step) -> Tensor:
            return -(1 - p.alpha) * gradient(w, forget.at(step))

        keep = _half_step(at, 1 - forgets, keeping, +1, p, keep_velocity)
        keep_velocity = p.momentum * keep_velocity + keep
        at = at - rate * keep_velocity
        lose = _half_step(at, forgets, forgetting, -1, p, forget_velocity)
        forget_velocity = p.momentum * forget_velocity + lose
        at = at - rate * forget_velocity
    return at


@pytest.mark.parametrize("switches", SWITCHES)
def test_it_is_the_method_of_the_paper(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Brute, switches: dict[str, Any]
) -> None:
    """Five steps with every switch agree with a brute-force twin in float64."""
    parameters = _parameters(mask_fraction=0.3, **switches)
    run = start(network=copy.deepcopy(two_layers))
    sharp_minmax(run, parameters)
    expected = _brute_force(two_layers, run, brute_gradient, parameters)
    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-11)
    assert not torch.allclose(actual, parameters_to_vector(two_layers.parameters()))


def test_without_a_sharpness_step_it_is_masked_neggrad(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Brute
) -> None:
    """rho = 0: the keeping half takes masked SGD steps, the forgetting half masked ascent steps."""
    parameters = _parameters(rho=0.0, mask_fraction=0.3)
    run = start(network=copy.deepcopy(two_layers))
    sharp_minmax(run, parameters)
    plain = _parameters(rho=0.0, mask_fraction=0.3, sharpness_weight=0.0)
    expected = _brute_force(two_layers, run, brute_gradient, plain)
    torch.testing.assert_close(
        parameters_to_vector(run.network.parameters()).detach(), expected, rtol=1e-9, atol=1e-12
    )


def _forgets(run: Run, p: SharpMinMax) -> list[Tensor]:
    return forget_mask(Differentiable(run.network), run.forget, fraction=p.mask_fraction, end=p.mask_end)


def test_only_the_forgetting_half_moves_when_keeping_pulls_nowhere(start: Callable[..., Run]) -> None:
    """With alpha next to nothing and no weight decay the keeping half keeps its bits."""
    parameters = _parameters(alpha=1e-30, weight_decay=0.0, steps=20)
    run = start()
    marks = _forgets(run, parameters)
    before = [weight.detach().clone() for weight in run.network.parameters()]
    sharp_minmax(run, parameters)
    for weight, old, marked in zip(run.network.parameters(), before, marks, strict=True):
        assert torch.equal(weight[~marked], old[~marked])
        assert (weight[marked] != old[marked]).any() or not marked.any()


def test_only_the_keeping_half_moves_when_forgetting_pulls_nowhere(start: Callable[..., Run]) -> None:
    """With alpha = 1 and no weight decay the forgetting half keeps its bits."""
    parameters = _parameters(alpha=1.0, weight_decay=0.0, steps=20)
    run = start()
    marks = _forgets(run, parameters)
    before = [weight.detach().clone() for weight in run.network.parameters()]
    sharp_minmax(run, parameters)
    for weight, old, marked in zip(run.network.parameters(), before, marks, strict=True):
        assert torch.equal(weight[marked], old[marked])
    assert any(
        not torch.equal(weight, old) for weight, old in zip(run.network.parameters(), before, strict=True)
    )


def test_statistics_follow_one_pass_over_the_batches_to_keep(start: Callable[..., Run]) -> None:
    """After one step the running statistics are those of a plain pass over the first batch of R."""
    run = start()
    plain = copy.deepcopy(run.network).train()
    plain(run.retain_batches(32).at(0).images)
    sharp_minmax(run, _parameters(steps=1))
    for (name, mine), theirs in zip(run.network.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs), name


def test_statistics_can_be_frozen(start: Callable[..., Run]) -> None:
    """With the switch no running statistic moves, and nothing that normalises the pixels either."""
    run = start()
    before = copy.deepcopy(run.network)
    sharp_minmax(run, _parameters(freeze_statistics=True))
    for mine, theirs in zip(run.network.buffers(), before.buffers(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("ascent", "passes"), [("gradient", 4), ("momentum", 2)])
def test_what_a_step_costs(start: Callable[..., Run], ascent: str, passes: int) -> None:
    """Two passes a half, or one along the momentum, and one over the forget set for the mask."""
    assert sharp_minmax(start(), _parameters(steps=7, ascent=ascent)).passes == passes * 7 + 1


def test_it_forgets_and_keeps(start: Callable[..., Run]) -> None:
    """Memorised wrong labels are forgotten, the other rows stay learned."""
    trace = sharp_minmax(start(), _parameters(steps=40, alpha=0.8))
    assert trace.curve[0]["forget_accuracy"] > 0.8
    assert trace.curve[-1]["forget_accuracy"] < 0.2
    assert trace.curve[-1]["retain_accuracy"] > 0.9


def test_as_released_it_does_what_the_published_code_does(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Brute
) -> None:
    """The smallest gradients marked; (2g - m g_hat) moves every weight, and both steps decay all of them."""
    p = _parameters(mask_fraction=0.3, adaptive=False, rho=0.1, as_released=True)
    run = start(network=copy.deepcopy(two_layers))
    sharp_minmax(run, p)
    at = parameters_to_vector(two_layers.parameters()).detach()
    sizes = brute_gradient(at, run.forget.take(slice(None))).abs()
    marked = torch.zeros_like(at)
    marked[sizes.argsort()[: round(0.3 * len(at))]] = 1
    velocities = [torch.zeros_like(at), torch.zeros_like(at)]
    for step in range(p.steps):
        halves = [
            (run.retain_batches(32).at(step), p.alpha, 1),
            (run.forget_batches(16).at(step), p.alpha - 1, -1),
        ]
        for half, (batch, scale, sign) in enumerate(halves):
            own = scale * brute_gradient(at, batch)
            seen = 1 - marked if half == 0 else marked
            ahead = seen * scale * brute_gradient(at + 0.1 * own / own.norm(), batch)
            combined = own + sign * (ahead - own) + p.weight_decay * at
            velocities[half] = p.momentum * velocities[half] + combined
            at = at - p.learning_rate * (1 - step / p.steps) * velocities[half]
    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, at, rtol=1e-8, atol=1e-11)


def test_the_published_forgetting_step_leaks_and_ours_does_not(start: Callable[..., Run]) -> None:
    """With next to no pull to keep and no decay, published code still moves the half that keeps."""
    for released in (True, False):
        run = start()
        before = [weight.detach().clone() for weight in run.network.parameters()]
        sharp_minmax(run, _parameters(alpha=1e-30, weight_decay=0.0, as_released=released))
        masks = run.kept["mask"].values()
        moved = [
            (weight[~mask] != old[~mask]).any()
            for weight, old, mask in zip(run.network.parameters(), before, masks, strict=True)
        ]
        assert bool(torch.stack(moved).any()) is released


def test_alpha_acts_with_adamw_too(start: Callable[..., Run]) -> None:
    """AdamW takes gradients of any length alike: published code's alpha then does nothing."""
    moved: list[float] = []
    for alpha in (0.5, 0.9):
        run = start()
        before = [weight.detach().clone() for weight in run.network.parameters()]
        p = _parameters(alpha=alpha, optimiser="adamw", learning_rate=1e-3, weight_decay=0.0)
        sharp_minmax(run, p)
        masks = run.kept["mask"].values()
        moved.append(
            sum(
                float((weight[mask].detach() - old[mask]).abs().sum())
                for weight, old, mask in zip(run.network.parameters(), before, masks, strict=True)
            )
        )
    assert moved[1] < 0.5 * moved[0]
