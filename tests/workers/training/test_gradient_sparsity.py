from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from app.jobs.params import GradientSparsity
from workers.training.gradient_sparsity import SparseDescent, group_masks, norm_and_direction
from workers.training.gradients import Differentiable, Forward, Loss
from workers.training.tally import Tally

Norm = Literal["l1", "l2", "linf"]
Form = Literal["exact", "finite_difference"]
NORMS: Sequence[Norm] = ("l1", "l2", "linf")
FORMS: Sequence[Form] = ("exact", "finite_difference")


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _descent(
    model: Differentiable, tally: Tally | None = None, window: int = 1, **given: Any
) -> SparseDescent:
    objective = GradientSparsity(name="gradient_sparsity", **given)
    return SparseDescent(model, objective, tally or Tally(), window=window)


def _at(network: nn.Module, flat: Tensor) -> dict[str, Tensor]:
    """A flat vector of weights under their names."""
    named = dict(network.named_parameters())
    parts = torch.split(flat, [weight.numel() for weight in named.values()])
    return {name: part.view_as(weight) for (name, weight), part in zip(named.items(), parts, strict=True)}


Value = Callable[[Tensor], Tensor]


@pytest.fixture
def value(two_layers: nn.Module, batch: tuple[Tensor, Tensor]) -> Value:
    """The loss of the two layers as a function of a flat vector of weights."""
    inputs, labels = batch
    return lambda flat: functional.cross_entropy(
        functional_call(two_layers, _at(two_layers, flat), inputs), labels
    )


def _penalised(value: Value, flat: Tensor, norm: Norm, rho: float) -> Tensor:
    """The gradient of L + rho |g|, left to autograd entirely."""
    at = flat.clone().requires_grad_()
    loss = value(at)
    (gradient,) = torch.autograd.grad(loss, at, create_graph=True)
    order = {"l1": 1, "l2": 2, "linf": torch.inf}[norm]
    return torch.autograd.grad(loss + rho * torch.linalg.vector_norm(gradient, order), at)[0]


def _gradient(value: Value, flat: Tensor) -> Tensor:
    at = flat.clone().requires_grad_()
    return torch.autograd.grad(value(at), at)[0]


@pytest.mark.parametrize("norm", NORMS)
def test_exact_is_the_gradient_of_loss_and_norm(
    two_layers: nn.Module, loss: Loss, value: Value, norm: Norm
) -> None:
    """g + rho H s is what autograd makes of L + rho |g|, to rounding, at three passes."""
    model = Differentiable(two_layers)
    at = parameters_to_vector(model.weights).detach()
    found = _descent(model, rho=0.3, norm=norm, form="exact").gradient([loss], 0)
    torch.testing.assert_close(_flat(found), _penalised(value, at, norm, 0.3), rtol=1e-10, atol=1e-13)
    assert model.passes == 3


@pytest.mark.parametrize("norm", NORMS)
def test_finite_difference_is_the_gradient_of_its_own_objective(
    two_layers: nn.Module, loss: Loss, value: Value, norm: Norm
) -> None:
    """Of L(w) + rho (L(w + epsilon s) - L(w)) / epsilon with s held constant, at two passes."""
    model = Differentiable(two_layers)
    rho, epsilon = 0.02, 0.05
    at = parameters_to_vector(model.weights).detach().clone().requires_grad_()
    gradient = _gradient(value, at.detach())
    direction = {
        "l1": gradient.sign(),
        "l2": gradient / gradient.norm(),
        "linf": gradient.sign() * (gradient.abs() == gradient.abs().max()),
    }[norm]
    twin = value(at) + rho * (value(at + epsilon * direction) - value(at)) / epsilon
    found = _descent(model, rho=rho, norm=norm, epsilon=epsilon, epsilon_unit="absolute").gradient([loss], 0)
    expected = torch.autograd.grad(twin, at)[0]
    torch.testing.assert_close(_flat(found), expected, rtol=1e-9, atol=1e-12)
    assert model.passes == 2


class _Bowl(nn.Module):
    """L = k w^2 / 2 in one weight, which is at 2."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))

    def forward(self, k: Tensor) -> Tensor:
        return 0.5 * k * self.w.square()


def _bowl(forward: Forward) -> Tensor:
    return forward(torch.tensor(3.0)).sum()


def test_the_quadratic_by_hand() -> None:
    """L = 3 w^2 / 2 at w = 2: g = 6 and H s = 3, so rho = .1 gives 6.3 in either form, exactly."""
    model = Differentiable(_Bowl())
    for form in FORMS:
        descent = _descent(model, rho=0.1, form=form, epsilon=1e-3, epsilon_unit="absolute")
        assert descent.gradient([_bowl], 0)[0].item() == pytest.approx(6.3, abs=1e-9)


@pytest.fixture
def smooth() -> tuple[Differentiable, Loss]:
    """A convolutional network with SiLU and batch normalisation in float64, and a batch's loss."""
    generator = torch.Generator().manual_seed(3)
    with torch.device("meta"):
        network = nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4),
            nn.SiLU(),
            nn.Conv2d(4, 4, 3),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(16, 3),
        ).double()
    network.to_empty(device="cpu")
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    inputs = torch.randn(16, 2, 6, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (16,), generator=generator)
    return Differentiable(network.train()), lambda forward: functional.cross_entropy(forward(inputs), labels)


@pytest.mark.parametrize("norm", NORMS)
def test_on_a_smooth_network_the_forms_agree(smooth: tuple[Differentiable, Loss], norm: Norm) -> None:
    """At epsilon = 1e-5 the penalties differ by less than 2%; at a tenth of it by a tenth of that."""
    model, loss = smooth
    plain = _flat(model.gradient(loss))
    exact = _flat(_descent(model, rho=1.0, norm=norm, form="exact").gradient([loss], 0)) - plain

    def error(epsilon: float) -> float:
        rule: dict[str, Any] = {"norm": norm, "epsilon": epsilon, "epsilon_unit": "absolute"}
        found = _flat(_descent(model, rho=1.0, **rule).gradient([loss], 0)) - plain
        return float((found - exact).norm() / exact.norm())

    assert error(1e-5) < 0.02
    assert error(1e-6) == pytest.approx(error(1e-5) / 10, rel=0.2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parts", [1, 2])
def test_statistics_move_once_and_nothing_is_left_behind(
    normalised: nn.Module, batch: tuple[Tensor, Tensor], form: Form, parts: int
) -> None:
    """Running statistics are those of one pass over each part, and every weight keeps its bits."""
    inputs, labels = batch
    plain = copy.deepcopy(normalised)
    model = Differentiable(normalised)
    weights = copy.deepcopy(model.weights)
    cut = list(zip(inputs.tensor_split(parts), labels.tensor_split(parts), strict=True))
    losses = [_share(part, some, len(some) / len(labels)) for part, some in cut]
    descent = _descent(model, rho=0.1, form=form)
    for step in range(3):
        for part, _ in cut:
            plain(part)
        descent.gradient(losses, step)
        for mine, theirs in zip(normalised.buffers(), plain.buffers(), strict=True):
            assert torch.equal(mine, theirs)
    for mine, theirs in zip(model.weights, weights, strict=True):
        assert torch.equal(mine, theirs)


def _share(inputs: Tensor, labels: Tensor, share: float) -> Loss:
    return lambda forward: share * functional.cross_entropy(forward(inputs), labels)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm", NORMS)
def test_parts_of_a_batch_give_what_the_whole_gives(
    two_layers: nn.Module, batch: tuple[Tensor, Tensor], loss: Loss, form: Form, norm: Norm
) -> None:
    """The norm is that of the whole batch's gradient, however many parts it comes in."""
    inputs, labels = batch
    whole = _descent(Differentiable(two_layers), rho=0.05, form=form, norm=norm).gradient([loss], 0)
    cut = [slice(0, 3), slice(3, 8)]
    losses = [_share(inputs[part], labels[part], len(labels[part]) / 8) for part in cut]
    model = Differentiable(two_layers)
    found = _descent(model, rho=0.05, form=form, norm=norm).gradient(losses, 0)
    torch.testing.assert_close(_flat(found), _flat(whole), rtol=1e-8, atol=1e-11)
    assert model.passes == (8 if form == "exact" else 4)


@pytest.mark.parametrize("form", FORMS)
def test_without_rho_it_is_the_plain_gradient(two_layers: nn.Module, loss: Loss, form: Form) -> None:
    """To the last bit, and at one pass."""
    model = Differentiable(two_layers)
    found = _descent(model, rho=0.0, form=form).gradient([loss], 0)
    plain = Differentiable(two_layers).gradient(loss)
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))
    assert model.passes == 1


@pytest.mark.parametrize("form", FORMS)
def test_it_counts_every_so_many_steps_and_then_as_much(
    two_layers: nn.Module, loss: Loss, form: Form
) -> None:
    """With every = 3 the steps 0 and 3 are penalised with three times rho, the others are plain."""
    model = Differentiable(two_layers)
    given: dict[str, Any] = {"form": form, "epsilon": 1e-4, "epsilon_unit": "absolute"}
    seldom = _descent(model, rho=0.1, every=3, **given)
    strong = _flat(_descent(model, rho=0.3, **given).gradient([loss], 0))
    plain = _flat(model.gradient(loss))
    for step, expected in enumerate([strong, plain, plain, strong]):
        found = _flat(seldom.gradient([loss], step))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_weights_that_are_not_used_are_left_out(form: Form) -> None:
    """Their gradient is zeros: neither norm nor penalty knows of them."""

    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle = nn.Parameter(torch.ones(3, dtype=torch.float64))
            self.used = nn.Parameter(torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs * self.used.square()

    model = Differentiable(Partly())
    inputs = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    tally = Tally()
    descent = _descent(model, tally, rho=0.1, form=form, epsilon=1e-6, epsilon_unit="absolute")
    idle, used = descent.gradient([lambda forward: forward(inputs).sum()], 0)
    assert not idle.any()
    # L = sum a w^2: g = 2 a w = [1, -8, 6], H s = 2 a sign(g) = [2, -4, 6].
    torch.testing.assert_close(used, torch.tensor([1.2, -8.4, 6.6], dtype=torch.float64))
    assert tally.read()["gradient_norm"] == pytest.approx(15)


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_that_draws_draws_the_same_in_every_pass(form: Form) -> None:
    """With dropout the penalty is that of one mask, not the noise between two."""
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    network.to_empty(device="cpu")
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    inputs = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (8,), generator=generator)
    model = Differentiable(network.train())
    seen: list[Tensor] = []

    def loss(forward: Forward) -> Tensor:
        logits = forward(inputs)
        seen.append(logits.detach())
        return functional.cross_entropy(logits, labels)

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        _descent(model, rho=0.1, form=form, epsilon=1e-9, epsilon_unit="absolute").gradient([loss, loss], 0)
    assert len(seen) == 4
    first, second = (torch.cat(part) for part in (seen[:2], seen[2:]))
    torch.testing.assert_close(first, second, rtol=0, atol=1e-6)
    assert not torch.allclose(seen[0], seen[1])


def test_penalised_passes_are_never_bfloat16(two_layers: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Autocast is for the plain steps alone: a small step would be rounded away in bfloat16."""
    network = copy.deepcopy(two_layers).float()
    inputs, labels = batch[0].float(), batch[1]
    model = Differentiable(network, autocast=torch.bfloat16)
    kinds: list[bool] = []

    def loss(forward: Forward) -> Tensor:
        logits = forward(inputs)
        kinds.append(bool(torch.equal(logits, logits.bfloat16().float())))
        return functional.cross_entropy(logits, labels)

    for form in FORMS:
        _descent(model, form=form, every=2).gradient([loss], 0)
    _descent(model, every=2).gradient([loss], 1)
    assert kinds == [False, False, False, True]


@pytest.mark.parametrize(
    ("group", "penalised"),
    [("all", [1, 1, 1, 1]), ("matrices", [1, 0, 1, 0]), ("head", [0, 0, 1, 1]), ("body", [1, 1, 0, 0])],
)
def test_groups_of_weights(
    two_layers: nn.Module, loss: Loss, value: Value, group: Any, penalised: list[int]
) -> None:
    """The norm covers the group's gradients alone; the penalty moves every weight that these depend on."""
    model = Differentiable(two_layers)
    masks = group_masks(model, group)
    assert [1, 1, 1, 1] if masks is None else [int(mask) for mask in masks] == penalised
    at = parameters_to_vector(model.weights).detach().clone().requires_grad_()
    chosen = _flat([torch.full_like(w, one) for w, one in zip(model.weights, penalised, strict=True)])
    total = value(at)
    (gradient,) = torch.autograd.grad(total, at, create_graph=True)
    expected = torch.autograd.grad(total + 0.2 * (gradient * chosen.detach()).abs().sum(), at)[0]
    found = _descent(model, rho=0.2, group=group, form="exact").gradient([loss], 0)
    torch.testing.assert_close(_flat(found), expected, rtol=1e-10, atol=1e-13)


def test_the_largest_entry_is_one(draw: torch.Generator) -> None:
    """Where several entries are largest, linf's direction is at the first, with its sign."""
    gradients = [torch.tensor([[1.0, -3.0], [3.0, 0.0]]), torch.tensor([2.0, -3.0])]
    norm, direction = norm_and_direction(gradients, "linf")
    assert norm == 3
    assert torch.equal(direction[0], torch.tensor([[0.0, -1.0], [0.0, 0.0]]))
    assert not direction[1].any()


def test_a_relative_step_is_a_share_of_the_weights(two_layers: nn.Module, loss: Loss) -> None:
    """Whatever the norm, the step's Euclidean length is epsilon times that of the weights."""
    model = Differentiable(two_layers)
    length = float(_flat(model.weights).detach().norm())
    for norm in NORMS:
        tally = Tally()
        descent = _descent(model, tally, norm=norm, epsilon=0.01, epsilon_unit="relative")
        descent.gradient([loss], 0)
        _, direction = norm_and_direction(model.gradient(loss), norm)
        taken = tally.read()["epsilon"] * float(_flat(direction).norm())
        assert taken == pytest.approx(0.01 * length, rel=1e-6)


def test_the_check_by_hand() -> None:
    """L = 3 w^2 / 2 at 2 with epsilon = .4: it rises by 2.64, where the gradient foretells 2.4."""
    tally = Tally()
    descent = _descent(Differentiable(_Bowl()), tally, epsilon=0.4, epsilon_unit="absolute")
    descent.gradient([_bowl], 0)
    figures = tally.read()
    assert figures["check"] == pytest.approx(2.64 / 2.4)
    assert figures["gradient_norm"] == pytest.approx(6)
    assert figures["epsilon"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("power", "epsilon", "after"),
    [(1, 0.02, 0.025), (1, 0.5, 0.5), (1, 1.0, 1.0), (4, 0.05, 0.05), (4, 0.5, 0.25)],
)
def test_an_automatic_step_is_kept_where_the_loss_is_nearly_straight(
    power: int, epsilon: float, after: float
) -> None:
    """Of L ~ w^2 a share e makes the check 1 + e / 2: raised up to 1.05, kept up to 1.5. w^8 bends more."""
    descent = _descent(Differentiable(_Bowl()), window=2, epsilon=epsilon)
    for step in range(2):
        descent.gradient([lambda forward: _bowl(forward) ** power], step)
    assert float(descent.state["epsilon"]) == pytest.approx(after)


def test_an_automatic_step_grows_to_ten_times_its_beginning(two_layers: nn.Module, loss: Loss) -> None:
    """On straight ground it is raised an epoch by a quarter, and no further than that."""
    descent = _descent(Differentiable(two_layers), window=1, epsilon=1e-6)
    for step in range(15):
        descent.gradient([loss], step)
    assert float(descent.state["epsilon"]) == pytest.approx(1e-5)
