from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn import functional

from app.jobs.params import BuiltIn, FisherForgetting
from workers.data.batches import Rows
from workers.methods.curvature import Progress, Sample, TooLarge, count, move
from workers.methods.fisher_forgetting import categorical, fisher_forgetting, fisher_information, shaped
from workers.methods.run import Run
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.evaluate import accuracy, evaluate
from workers.training.gradients import Differentiable

Curvature = Literal["diagonal", "full"]
CURVATURES: tuple[Curvature, ...] = ("diagonal", "full")


def _weights(network: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def _brute_information(network: Network, images: Tensor) -> Tensor:
    """E[s s'] over rows and the classes that the network predicts, s the gradient of log p(class | row)."""
    weights = {name: weight.detach() for name, weight in network.named_parameters()}

    def log_chances(weights: dict[str, Tensor], image: Tensor) -> Tensor:
        logits: Tensor = functional_call(network, weights, (image[None],))
        return logits[0].log_softmax(0)

    size = count(list(weights.values()))
    total = torch.zeros(size, size, dtype=torch.float64)
    for image in images:
        parts = jacrev(log_chances)(weights, image)
        scores = torch.cat([part.flatten(1) for part in parts.values()], 1)  # [K, d]
        total += torch.einsum("c,ci,cj->ij", log_chances(weights, image).exp(), scores, scores)
    return total / len(images)


@pytest.mark.parametrize("curvature", CURVATURES)
def test_the_noise_has_its_closed_form_on_linear_regression(curvature: Curvature) -> None:
    """With unit Gaussian errors F = X'X / n for each output; the ridge is the damping."""
    X = np.random.default_rng(0).normal(size=(300, 5))  # three batches
    model = Differentiable(nn.Linear(5, 3, bias=False, device="meta").to_empty(device="cpu").double())
    information = fisher_information(
        model,
        Sample(Rows(torch.from_numpy(X), torch.zeros(300))),
        lambda outputs: torch.eye(3).double().expand(len(outputs), 3, 3),
        curvature=curvature,
        progress=Progress(Silent(), 0),
    )
    closed = np.kron(np.eye(3), X.T @ X / 300)
    if curvature == "diagonal":
        np.testing.assert_allclose(information.numpy(), closed.diagonal(), rtol=1e-12)
        closed = np.diag(closed.diagonal())
    else:
        np.testing.assert_allclose(information.numpy(), closed, rtol=1e-12, atol=1e-15)
    parameters = FisherForgetting(curvature=curvature, noise=0.3, damping=0.02)
    linear = shaped(torch.eye(15).double(), information, parameters).numpy()
    covariance = 0.3 * np.linalg.inv(scipy.linalg.sqrtm(closed + 0.02 * np.eye(15)))
    np.testing.assert_allclose(linear @ linear.T, covariance, rtol=1e-10, atol=1e-12)


def test_the_information_is_that_of_the_models_own_predictions(two_layers: Network, digits: Rows) -> None:
    """Against the outer products of the scores, row by row and class by class; labels do not matter."""
    rows = digits.take(slice(140))  # two batches
    expected = _brute_information(two_layers, rows.images)
    sample = Sample(Rows(rows.images, torch.zeros(140, dtype=torch.int64)))
    model, progress = Differentiable(two_layers), Progress(Silent(), 0)
    full = fisher_information(model, sample, categorical, curvature="full", progress=progress)
    diagonal = fisher_information(model, sample, categorical, curvature="diagonal", progress=progress)
    torch.testing.assert_close(full, expected, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(diagonal, expected.diagonal(), rtol=1e-9, atol=1e-14)


def test_every_class_gets_its_noise_by_the_same_rule(start: Callable[..., Run], two_layers: Network) -> None:
    """Over 60 draws the variance around the weights themselves, in each class's own weights of the last layer
    and in the first layer, is the formula's: none is set to zero or scaled by another factor.
    """
    retain = start().retain.take(slice(8))
    expected = 1e-3 * (_brute_information(two_layers, retain.images).diagonal() + 1e-4).rsqrt()
    drawn: list[Tensor] = []
    for seed in range(60):
        run = start(network=copy.deepcopy(two_layers), retain=retain, seed=seed)
        fisher_forgetting(run, FisherForgetting(noise=1e-3, damping=1e-4))
        drawn.append(_weights(run.network) - _weights(two_layers))
    ratios = torch.stack(drawn).square().mean(0) / expected
    first, last, biases = ratios[:390], ratios[390:450].view(10, 6), ratios[450:]
    by_class = torch.cat([last, biases[:, None]], 1).mean(1)
    assert abs(float(first.mean()) - 1) < 5 * (2 / (60 * 390)) ** 0.5
    assert float((by_class - 1).abs().max()) < 5 * (2 / (60 * 7)) ** 0.5


def test_the_full_noise_is_shaped_by_the_whole_information(
    start: Callable[..., Run], two_layers: Network
) -> None:
    """The weights' change n has n' C^-1 n like so many squared normal values, C the covariance."""
    run = start(network=copy.deepcopy(two_layers))
    trace = fisher_forgetting(run, FisherForgetting(curvature="full", noise=1e-4, damping=1e-6))
    moved = _weights(run.network) - _weights(two_layers)
    information = _brute_information(two_layers, run.retain.take(slice(None)).images)
    inverse = scipy.linalg.sqrtm(information.numpy() + 1e-6 * np.eye(460)) / 1e-4
    assert abs(float(moved.numpy() @ inverse @ moved.numpy()) / 460 - 1) < 5 * (2 / 460) ** 0.5
    share = float(moved.norm() / _weights(two_layers).norm())
    assert trace.curve[0]["relative_noise"] == pytest.approx(share)
    assert run.judged["relative_noise"] == trace.curve[0]["relative_noise"]


def test_what_the_remaining_rows_need_is_spared(start: Callable[..., Run]) -> None:
    """They lose less by it than by as much noise that is the same for all weights."""
    given, run, alike = start(), start(), start()
    fisher_forgetting(run, FisherForgetting(noise=1e-5))
    moved = _weights(run.network) - _weights(given.network)
    noise = torch.randn(len(moved), generator=torch.Generator().manual_seed(1))
    move(Differentiable(alike.network), noise * moved.norm() / noise.norm())
    before, spared, hurt = (
        float(functional.cross_entropy(evaluate(each.network, each.retain), each.retain.labels))
        for each in (given, run, alike)
    )
    assert spared - before < 0.5 * (hurt - before)


def test_much_noise_destroys_what_was_memorised(start: Callable[..., Run]) -> None:
    """At the default amount R stays learned; with more, the wrong labels are lost."""
    run, noisy = start(), start()
    fisher_forgetting(run, FisherForgetting())
    assert accuracy(run.network, run.retain)["correct"] >= 132  # of 136
    fisher_forgetting(noisy, FisherForgetting(noise=1e-3))
    assert accuracy(noisy.network, noisy.forget)["correct"] <= 12  # of 24


def test_passes_are_counted(start: Callable[..., Run]) -> None:
    """A batch of 128 rows takes one forward pass, and one pass for each class."""
    assert fisher_forgetting(start(), FisherForgetting()).passes == 2 * (1 + 10)
    assert fisher_forgetting(start(), FisherForgetting(retain_sample=128)).passes == 1 + 10


@pytest.mark.parametrize("curvature", CURVATURES)
def test_what_cannot_fit_is_refused_before_any_pass(
    start: Callable[..., Run], stops_after: Callable[[int], Silent], curvature: Curvature
) -> None:
    """The first pass would be cancelled; it is never come to."""
    network = nn.Module()
    network.weight = nn.Parameter(torch.zeros(1).expand(2**40))  # as large as it likes, in one number
    with pytest.raises(TooLarge, match=f"{curvature} on 1099511627776 weights needs"):
        fisher_forgetting(
            start(network=network, monitor=stops_after(0)), FisherForgetting(curvature=curvature)
        )


def test_a_matrix_that_cannot_fit_is_refused_where_its_diagonal_is_not(
    start: Callable[..., Run], stops_after: Callable[[int], Silent]
) -> None:
    """1.5 million weights: the diagonal is begun, and cancelled."""
    wide = build(BuiltIn(width=8), 10, (8, 8, 1), torch.Generator().manual_seed(0))
    with pytest.raises(TooLarge):
        fisher_forgetting(start(network=wide, monitor=stops_after(0)), FisherForgetting(curvature="full"))
    with pytest.raises(Cancelled):
        fisher_forgetting(start(network=wide, monitor=stops_after(0)), FisherForgetting())


def test_it_follows_from_the_seed_and_the_remaining_rows(start: Callable[..., Run], mixed: Rows) -> None:
    """Same bits again, whatever the rows to forget are; other noise by another seed; no buffer is touched."""

    def result(**changes: Any) -> Tensor:
        run = start(**changes)
        buffers = [buffer.clone() for buffer in run.network.buffers()]
        fisher_forgetting(run, FisherForgetting())
        assert all(torch.equal(a, b) for a, b in zip(run.network.buffers(), buffers, strict=True))
        return _weights(run.network)

    first = result()
    assert torch.equal(first, result())
    assert torch.equal(first, result(forget=mixed.take(slice(100, 101))))
    assert not torch.equal(first, result(seed=6))
