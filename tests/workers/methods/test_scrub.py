from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import groupby

import pytest
import torch
from scipy.special import rel_entr, softmax
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import Plain, Sam, Scrub
from workers.data.batches import Rows
from workers.methods.run import Run
from workers.methods.scrub import Rounds, scrub, soft_distance
from workers.nets.network import Network

Brute = Callable[[Tensor, Rows], Tensor]


def test_the_distance_is_kullback_and_leiblers() -> None:
    """T^2 KL(teacher || student), as scipy computes it, and 0 between equals."""
    draw = torch.Generator().manual_seed(0)
    teacher, student = (torch.randn(5, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    p, q = (softmax(logits.numpy() / 3, axis=1) for logits in (teacher, student))
    expected = 9 * rel_entr(p, q).sum(1).mean()
    assert float(soft_distance(teacher, student, 3.0)) == pytest.approx(expected, rel=1e-12)
    assert float(soft_distance(teacher, teacher, 3.0)) == pytest.approx(0, abs=1e-15)


def _kinds(plan: Rounds) -> list[tuple[str, int]]:
    return [(kind, len(list(steps))) for kind, steps in groupby(plan.at(n)[0] for n in range(plan.steps))]


def test_ascents_begin_the_first_rounds() -> None:
    """Published code that counts epochs from 0 ascends once more than it is told to."""
    plan = Rounds.of(Scrub(rounds=3, ascent_rounds=2), descents=10, ascents=4)
    assert _kinds(plan) == [("ascent", 4), ("descent", 3), ("ascent", 4), ("descent", 3 + 4)]
    numbers = [plan.at(step) for step in range(plan.steps)]
    assert [n for kind, n in numbers if kind == "descent"] == list(range(10))
    assert [n for kind, n in numbers if kind == "ascent"] == list(range(8))


def test_it_may_ascend_never_or_always() -> None:
    """Rounds without an ascent, and no more ascents than rounds."""
    assert _kinds(Rounds.of(Scrub(rounds=2, ascent_rounds=0), descents=6, ascents=4)) == [("descent", 6)]
    plan = Rounds.of(Scrub(rounds=2, ascent_rounds=9), descents=6, ascents=1)
    assert _kinds(plan) == [("ascent", 1), ("descent", 3), ("ascent", 1), ("descent", 3)]


@pytest.mark.parametrize("objective", [Plain(), Sam(name="sam", rho=0.2)])
def test_it_leaves_its_teacher_and_stays_with_it_by_turns(
    start: Callable[..., Run],
    two_layers: Network,
    brute_logits: Brute,
    descend: Callable[..., Tensor],
    objective: Plain | Sam,
) -> None:
    """Two rounds against a brute-force twin whose divergence is written out.

    Plain steps begin at the original, where the divergence is least: SAM has no direction to look into there.
    """
    ascents = 3 if isinstance(objective, Plain) else 0
    p = Scrub(
        steps=4,
        rounds=2,
        ascent_rounds=ascents // 3,
        learning_rate=0.05,
        teacher_weight=0.3,
        label_weight=0.8,
        temperature=2.0,
        forget_batch_size=9,
        objective=objective,
    )
    run = start(network=copy.deepcopy(two_layers))
    trace = scrub(run, p)
    assert trace.steps == 4 + ascents  # 24 rows to forget are three batches of 8
    origin = parameters_to_vector(two_layers.parameters()).detach()

    def loss(w: Tensor, step: int) -> Tensor:
        ascends = step < ascents
        batch = run.forget_batches(9).at(step) if ascends else run.retain_batches(64).at(step - ascents)
        student, teacher = brute_logits(w, batch), brute_logits(origin, batch)
        p_t, p_s = (logits.div(2).softmax(1) for logits in (teacher, student))
        distance = 4 * (p_t * (p_t / p_s).log()).sum(1).mean()
        if ascends:
            return -distance
        own = student.exp().sum(1).log() - student[torch.arange(len(batch)), batch.labels]
        return 0.8 * own.mean() + 0.3 * distance

    def slope(w: Tensor, step: int) -> Tensor:
        at = w.clone().requires_grad_()
        return torch.autograd.grad(loss(at, step), at)[0]

    def gradient(w: Tensor, step: int) -> Tensor:
        own = slope(w, step)
        return slope(w + 0.2 * own / own.norm(), step) if isinstance(objective, Sam) else own

    expected = descend(origin, Scrub(steps=4 + ascents, learning_rate=0.05), gradient)
    actual = parameters_to_vector(run.network.parameters()).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9)


def test_statistics_follow_the_batches_to_keep(start: Callable[..., Run]) -> None:
    """An ascent moves no running statistic."""
    run = start()
    before = copy.deepcopy(run.network)
    scrub(run, Scrub(steps=1, learning_rate=1e-30, rounds=1, ascent_rounds=1, precision="fp32"))
    plain = before.train()
    plain(run.retain_batches(64).at(0).images)
    for mine, theirs in zip(run.network.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs)


def test_it_forgets_and_keeps(start: Callable[..., Run]) -> None:
    """Memorised wrong labels are forgotten, the other rows stay learned."""
    p = Scrub(
        steps=60, learning_rate=3e-3, rounds=15, ascent_rounds=15, forget_batch_size=8, precision="fp32"
    )
    trace = scrub(start(), p)
    assert trace.curve[-1]["forget_accuracy"] < 0.1
    assert trace.curve[-1]["retain_accuracy"] > 0.85
