"""What holds for every method, whatever its parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from app.jobs import params
from app.jobs.params import METHODS as INFOS
from app.jobs.params import Steps
from workers.data.batches import Rows
from workers.methods.masks import extreme
from workers.methods.registry import METHODS
from workers.methods.run import Run
from workers.training.gradients import Differentiable, Forward
from workers.training.objectives import objective_gradient
from workers.training.optimiser import Sgd

STEPPING = sorted(name for name, info in INFOS.items() if issubclass(info.parameters, Steps))
SEEING_R = sorted(set(STEPPING) - {"gradient_ascent"})
WITH_OBJECTIVE = sorted(name for name in STEPPING if "objective" in params.method_schema(name)["properties"])
FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
OPTIMISERS = st.fixed_dictionaries(
    {
        "optimiser": st.sampled_from(["sgd", "adamw"]),
        "momentum": st.sampled_from([0.0, 0.5, 0.9]),
        "weight_decay": st.sampled_from([0.0, 1e-2]),
        "clip_norm": st.sampled_from([None, 0.1, 10.0]),
        "schedule": st.sampled_from(["constant", "linear", "cosine"]),
    }
)


def _after(run: Run, name: str, chosen: dict[str, Any]) -> list[Tensor]:
    """Every tensor of the network after a run of the method in full precision."""
    METHODS[name](run, params.method_parameters(name, {"precision": "fp32", "learning_rate": 1e-3, **chosen}))
    return list(run.network.state_dict().values())


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.lists(st.floats(0, 10, width=32), min_size=1, max_size=20), min_size=2, max_size=5),
    fraction=st.floats(0.001, 0.999),
    largest=st.booleans(),
)
def test_a_mask_has_its_size_and_its_order(sizes: list[list[float]], fraction: float, largest: bool) -> None:
    """round(p d) are marked, but one at least and one not; nothing outside is more extreme than what is."""
    flat = torch.tensor([size for part in sizes for size in part])
    marks = extreme([torch.tensor(part) for part in sizes], fraction=fraction, largest=largest)
    marked = torch.cat(marks)
    assert int(marked.sum()) == min(max(1, round(fraction * len(flat))), len(flat) - 1)
    inside, outside = flat[marked], flat[~marked]
    assert inside.min() >= outside.max() if largest else inside.max() <= outside.min()


@FEW
@given(name=st.sampled_from(["salun", "sharp_minmax"]), chosen=OPTIMISERS, fraction=st.floats(0.01, 0.9))
def test_untouched_coordinates_keep_their_bits(
    start: Callable[..., Run], name: str, chosen: dict[str, Any], fraction: float
) -> None:
    """SalUn's outside its mask; Sharp MinMax's forgetting half, where nothing pulls it."""
    run = start()
    before = [weight.detach().clone() for weight in run.network.parameters()]
    pulls = {"alpha": 1.0, "weight_decay": 0.0, "keeps": "rest"} if name == "sharp_minmax" else {}
    _after(run, name, {"steps": 3, "mask_fraction": fraction, **chosen, **pulls})
    for weight, old, mask in zip(run.network.parameters(), before, run.kept["mask"].values(), strict=True):
        still = mask if name == "sharp_minmax" else ~mask
        assert torch.equal(weight[still].view(torch.int32), old[still].view(torch.int32))


@FEW
@given(name=st.sampled_from(WITH_OBJECTIVE), chosen=OPTIMISERS, sharp=st.sampled_from(["sam", "asam"]))
def test_without_an_ascent_step_sharpness_changes_nothing(
    start: Callable[..., Run], name: str, chosen: dict[str, Any], sharp: str
) -> None:
    """rho = 0 gives the base optimiser's very bits, running statistics included."""
    common = {"steps": 3, **chosen}
    flat = {**common, "objective": {"name": sharp, "rho": 0.0}}
    assert _equal(_after(start(), name, common), _after(start(), name, flat))


@FEW
@given(name=st.sampled_from(["neggrad", "sharp_minmax"]), chosen=OPTIMISERS, shift=st.integers(1, 9))
def test_at_alpha_1_the_loss_never_reads_the_rows_to_forget(
    start: Callable[..., Run], mixed: Rows, name: str, chosen: dict[str, Any], shift: int
) -> None:
    """Other labels of F make no difference, but for the mask that they decide."""
    other = Rows(mixed.images[:24], (mixed.labels[:24] + shift) % 10)
    runs = start(), start(forget=other)
    common = {"steps": 3, **chosen, "alpha": 1.0}
    if name == "sharp_minmax":
        common |= {"momentum": 0.0, "weight_decay": 0.0, "clip_norm": None, "keeps": "rest"}
    results = [_after(run, name, common) for run in runs]
    if name == "neggrad":
        assert _equal(*results)
    else:
        masks = [torch.cat([part.flatten() for part in run.kept["mask"].values()]) for run in runs]
        forgets = masks[0] & masks[1]
        weights = [torch.cat([w.detach().flatten() for w in run.network.parameters()]) for run in runs]
        origin = torch.cat([w.detach().flatten() for w in start().network.parameters()])
        assert all(torch.equal(moved[forgets], origin[forgets]) for moved in weights)


@FEW
@given(name=st.sampled_from(SEEING_R), sharp=st.sampled_from(["plain", "sam", "asam"]))
def test_statistics_move_once_a_step_and_by_the_rows_to_keep(
    start: Callable[..., Run], name: str, sharp: str
) -> None:
    """However many passes a step takes: the number of tracked batches grows by that of the steps on R."""
    run = start()
    before = {key: int(value) for key, value in run.network.state_dict().items() if "num_batches" in key}
    given_objective = {"objective": {"name": sharp}} if name in WITH_OBJECTIVE else {}
    _after(run, name, {"steps": 4, **given_objective})
    after = run.network.state_dict()
    assert before
    assert all(int(after[key]) == value + 4 for key, value in before.items())


@FEW
@given(name=st.sampled_from(STEPPING), chosen=OPTIMISERS, seed=st.integers(0, 2**31))
def test_a_seed_gives_the_same_bits(
    start: Callable[..., Run], name: str, chosen: dict[str, Any], seed: int
) -> None:
    """Two runs of the same spec."""
    common = {"steps": 3, **chosen}
    assert _equal(_after(start(seed=seed), name, common), _after(start(seed=seed), name, common))


@FEW
@given(rho=st.floats(0.01, 1.0), rate=st.floats(1e-4, 0.1))
def test_a_sharp_step_is_the_plain_one_at_the_weights_ahead(
    start: Callable[..., Run], rho: float, rate: float
) -> None:
    """SAM's step is what a copy at w + rho g / |g| would take."""
    run = start()
    network = run.network.eval()
    ahead = copy.deepcopy(network)
    batch = run.retain.take(slice(0, 16))

    def loss(forward: Forward) -> Tensor:
        return functional.cross_entropy(forward(batch.images), batch.labels)

    model, other = Differentiable(network), Differentiable(ahead)
    own = other.gradient(loss)
    length = torch.cat([part.flatten() for part in own]).norm()
    with torch.no_grad():
        for weight, part in zip(other.weights, own, strict=True):
            weight.add_(rho * part / length)
    expected = [w.detach() - rate * g for w, g in zip(model.weights, other.gradient(loss), strict=True)]
    gradients = objective_gradient(model, loss, params.Sam(name="sam", rho=rho))
    Sgd(model.weights, momentum=0.0, weight_decay=0.0).step(gradients, rate)
    for weight, wanted in zip(model.weights, expected, strict=True):
        torch.testing.assert_close(weight.detach(), wanted, rtol=1e-4, atol=1e-6)
