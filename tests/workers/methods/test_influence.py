from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from app.jobs.params import BuiltIn, Influence
from workers.data.batches import Rows
from workers.methods.curvature import MeanLoss, NoStep, Progress, Sample, TooLarge, move
from workers.methods.influence import conjugate_gradient, influence, newton_direction
from workers.methods.run import Run
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.evaluate import accuracy
from workers.training.gradients import Differentiable

Brute = Callable[[Tensor, Rows], Tensor]
Solver = Literal["conjugate_gradient", "dense"]
SOLVERS: tuple[Solver, ...] = ("conjugate_gradient", "dense")


def _weights(network: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def _line(weight: Tensor) -> Differentiable:
    """x -> W x in float64."""
    outputs, inputs = weight.shape
    network = nn.Linear(inputs, outputs, bias=False, device="meta").to_empty(device="cpu").double()
    with torch.no_grad():
        network.weight.copy_(weight)
    return Differentiable(network)


def _hessian(gradient: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """By central differences of gradients."""
    columns = [(gradient(at + e) - gradient(at - e)) / 2e-5 for e in 1e-5 * torch.eye(len(at)).double()]
    return torch.stack(columns, 1)


@pytest.mark.parametrize("solver", SOLVERS)
def test_it_is_exact_on_ridge_regression(solver: Solver) -> None:
    """From the solution on all rows one step leads to the solution on the remaining rows, by scikit-learn."""
    draw = np.random.default_rng(0)
    X, Y = draw.normal(size=(60, 5)), draw.normal(size=(60, 3))
    decay = 0.02
    together, remaining = (
        Ridge(alpha=decay * len(part), fit_intercept=False, tol=1e-14).fit(X[part], Y[part]).coef_
        for part in (np.arange(60), np.arange(12, 60))
    )
    model = _line(torch.from_numpy(together))
    loss = MeanLoss(
        model,
        lambda outputs, wanted: 0.5 * (outputs - wanted).square().sum(),
        weight_decay=decay,
        progress=Progress(Silent(), 0),
    )
    retain = Sample(Rows(torch.from_numpy(X[12:]), torch.from_numpy(Y[12:])))
    parameters = Influence(solver=solver, damping=1e-12, tolerance=1e-13, iterations=100)
    solution, _ = newton_direction(loss, retain, retain, parameters)
    move(model, -solution.vector)
    assert np.abs(together - remaining).max() > 0.01
    np.testing.assert_allclose(_weights(model.network).view(3, 5).numpy(), remaining, atol=1e-9, rtol=0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_step_is_newtons(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Brute, solver: Solver
) -> None:
    """It equals the dense solution of a brute-force Hessian, and neither a gradient nor a diagonal step."""
    run = start(network=copy.deepcopy(two_layers))
    retain, at = run.retain.take(slice(None)), _weights(two_layers)
    influence(
        run,
        Influence(solver=solver, damping=0.5, weight_decay=0.01, iterations=500, tolerance=1e-10, scale=0.7),
    )
    gradient = brute_gradient(at, retain) + 0.01 * at
    system = _hessian(lambda w: brute_gradient(w, retain), at) + (0.01 + 2) * torch.eye(460).double()
    taken = (at - _weights(run.network)) / 0.7
    torch.testing.assert_close(taken, torch.linalg.solve(system, gradient), rtol=1e-6, atol=1e-8)

    def residual(step: Tensor) -> float:
        image = system @ step
        best = image.dot(gradient) / image.dot(image)  # of all lengths the one that serves the step most
        return float((gradient - best * image).norm() / gradient.norm())

    assert residual(taken) < 1e-6
    assert residual(gradient) > 0.1
    assert residual(gradient / system.diagonal()) > 0.1


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_damping_grows_until_the_hessian_is_positive(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Brute, solver: Solver
) -> None:
    """Where the loss curves downwards the equations are solved with the damping that is reported."""
    run = start(network=copy.deepcopy(two_layers))
    retain, at = run.retain.take(slice(None)), _weights(two_layers)
    trace = influence(run, Influence(solver=solver, damping=1e-3, iterations=2000, tolerance=1e-9))
    system = _hessian(lambda w: brute_gradient(w, retain), at) + 5e-4 * torch.eye(460).double()
    lowest = float(torch.linalg.eigvalsh(system)[0])
    damping = run.judged["damping"]
    assert isinstance(damping, float)
    assert lowest + 1e-3 < 0 < lowest + damping
    if solver == "dense":
        assert lowest + damping / 4 < 0
    taken = at - _weights(run.network)
    gradient = brute_gradient(at, retain) + 5e-4 * at
    assert (gradient - system @ taken - damping * taken).norm() < 1e-6 * gradient.norm()
    assert trace.curve[-1]["residual"] == run.judged["residual"]


def test_conjugate_gradients_are_scipys() -> None:
    """After every number of iterations on a positive definite system the iterate is the same."""
    draw = np.random.default_rng(1)
    half = draw.normal(size=(30, 20))
    A, b = half.T @ half, draw.normal(size=20)
    for iterations in (1, 3, 8, 15):
        expected, _ = scipy.sparse.linalg.cg(A, b, rtol=0, maxiter=iterations)
        found = conjugate_gradient(
            lambda v: torch.from_numpy(A) @ v, torch.from_numpy(b), iterations=iterations, tolerance=1e-15
        )
        np.testing.assert_allclose(found.vector.numpy(), expected, rtol=1e-7)
        missing = np.linalg.norm(b - A @ expected) / np.linalg.norm(b)
        assert found.residuals[-1] == pytest.approx(missing, rel=1e-6)
        assert (found.stopped, len(found.residuals)) == ("iterations", iterations)


def test_conjugate_gradients_stop_early() -> None:
    """At the tolerance, at a direction that curves downwards, and at once where nothing is to be solved."""

    def solved(diagonal: list[float], target: list[float]) -> tuple[str, int]:
        scales = torch.tensor(diagonal, dtype=torch.float64)
        found = conjugate_gradient(
            lambda v: scales * v, torch.tensor(target, dtype=torch.float64), iterations=9, tolerance=1e-4
        )
        return found.stopped, len(found.residuals)

    assert solved([2, 2, 2], [1, 2, 3]) == ("tolerance", 1)
    assert solved([3, 2, -1], [1, 1, 1]) == ("curvature", 1)
    assert solved([-1, -1, -1], [1, 1, 1]) == ("curvature", 0)
    assert solved([1, 1, 1], [0, 0, 0]) == ("tolerance", 1)


def test_a_direction_that_curves_downwards_is_no_step() -> None:
    """A loss that does so everywhere is refused when the iterations are used up."""
    model = _line(torch.ones(2, 3))
    loss = MeanLoss(
        model,
        lambda outputs, _: -outputs.square().sum(),
        weight_decay=0.0,
        progress=Progress(Silent(), 0),
    )
    rows = Sample(Rows(torch.eye(3).double(), torch.zeros(3)))
    with pytest.raises(NoStep, match="raise the damping"):
        newton_direction(loss, rows, rows, Influence(damping=1e-3, iterations=4))
    solution, damping = newton_direction(loss, rows, rows, Influence(damping=1e-3, iterations=9))
    assert damping == pytest.approx(1e-3 * 4**5)  # the first above the curvature, 2 / 3
    torch.testing.assert_close(solution.vector, torch.full((6,), (-2 / 3) / (damping - 2 / 3)).double())


def test_passes_are_counted(start: Callable[..., Run], two_layers: Network) -> None:
    """One a batch of R, two a batch and product; for the whole Hessian one a column, and one each 32."""
    sought: dict[str, Any] = {"damping": 8.0, "retain_sample": 100}
    trace = influence(start(network=copy.deepcopy(two_layers)), Influence(**sought))
    assert trace.passes == 2 + 2 * len(trace.curve)
    trace = influence(start(network=copy.deepcopy(two_layers)), Influence(solver="dense", **sought))
    assert trace.passes == 2 + 460 + 15


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_cannot_fit_is_refused_before_any_pass(
    start: Callable[..., Run], stops_after: Callable[[int], Silent], solver: Solver
) -> None:
    """The first pass would be cancelled; it is never come to."""
    network = nn.Module()
    network.weight = nn.Parameter(torch.zeros(1).expand(2**40))  # as large as it likes, in one number
    with pytest.raises(TooLarge, match=f"{solver} on 1099511627776 weights needs"):
        influence(start(network=network, monitor=stops_after(0)), Influence(solver=solver))


def test_a_hessian_that_cannot_fit_is_refused_where_its_products_are_not(
    start: Callable[..., Run], stops_after: Callable[[int], Silent]
) -> None:
    """1.5 million weights: by products it begins, and is cancelled."""
    wide = build(BuiltIn(width=8), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    with pytest.raises(TooLarge):
        influence(start(network=wide, monitor=stops_after(0)), Influence(solver="dense"))
    with pytest.raises(Cancelled):
        influence(start(network=wide, monitor=stops_after(0)), Influence())


def test_it_can_be_cancelled_between_products(
    start: Callable[..., Run], stops_after: Callable[[int], Silent]
) -> None:
    """The weights are then as they were."""
    run = start(monitor=stops_after(9))
    before = _weights(run.network)
    with pytest.raises(Cancelled):
        influence(run, Influence(damping=1.0))
    assert torch.equal(_weights(run.network), before)


def test_it_follows_from_the_seed_and_the_remaining_rows(start: Callable[..., Run], mixed: Rows) -> None:
    """Same bits again, whatever the rows to forget are; other bits where another sample is drawn."""
    parameters = Influence(damping=1.0, retain_sample=50)

    def result(**changes: Any) -> Tensor:
        run = start(**changes)
        influence(run, parameters)
        return _weights(run.network)

    first = result()
    assert torch.equal(first, result())
    assert torch.equal(first, result(forget=mixed.take(slice(100, 101))))
    assert not torch.equal(first, result(seed=6))


def test_it_forgets_and_keeps(start: Callable[..., Run]) -> None:
    """Memorised wrong labels fade, the other rows stay learned, and normalisation is not touched."""
    run = start()
    buffers = [buffer.clone() for buffer in run.network.buffers()]
    influence(run, Influence(damping=0.8, scale=5.0))
    assert accuracy(run.network, run.forget)["correct"] <= 16  # of 24
    assert accuracy(run.network, run.retain)["correct"] >= 132  # of 136
    assert all(torch.equal(a, b) for a, b in zip(run.network.buffers(), buffers, strict=True))
