"""Add noise to the weights where the remaining rows do not need them to be exact."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

from app.jobs.params import FisherForgetting
from workers.data.seeds import generator
from workers.methods.curvature import Progress, Sample, count, flat, move, outputs, refuse_unless_fits
from workers.methods.run import Run
from workers.training.gradients import Differentiable
from workers.training.loop import Trace

_MOST_ROWS = 128  # whose gradients are held at once,
_MOST_ELEMENTS = 2**28  # unless they have more elements together
_MATRICES = 4  # of the full curvature, in float64: F, its eigenvectors, and as much again to find them

Roots = Callable[[Tensor], Tensor]


def fisher_forgetting(run: Run, parameters: FisherForgetting) -> Trace:
    """w' = w + n with n drawn from N(0, alpha * (F + damping I)^(-1/2)), F the Fisher information of R.

    Golatkar et al. 2020, section 3. Every weight is treated alike: no class is known to the method, so the
    rows of the last layer, that of the deleted rows' class among them, get noise by the same rule as all
    others and are never set to zero. The rows to forget are not read.

    Raises:
        TooLarge: the information, or the gradients that it is made of, do not fit into memory.
        NoStep: the noise is not finite.
    """
    model = run.model("fp32")
    at_once = rows_at_once(count(model.weights))
    _refuse_oversize(model.weights, parameters.curvature, at_once)
    run.network.eval()
    sample = Sample.drawn(run.retain, parameters.retain_sample, run.seed)
    progress = Progress(run.monitor, sample.count_batches(at_once))
    information = fisher_information(
        model, sample, categorical, curvature=parameters.curvature, progress=progress
    )
    unit = torch.randn(len(information), 1, generator=generator(run.seed, "noise"), dtype=information.dtype)
    noise = shaped(unit.to(information.device), information, parameters)[:, 0]
    share = float(noise.norm() / flat(model.weights).detach().norm())
    move(model, noise.to(model.weights[0].dtype))
    run.judged["relative_noise"] = share
    return Trace(
        steps=1,
        passes=model.passes,
        seconds=time.perf_counter() - run.started,
        curve=[{"relative_noise": share}],
    )


def fisher_information(
    model: Differentiable,
    sample: Sample,
    roots: Roots,
    *,
    curvature: Literal["diagonal", "full"],
    progress: Progress,
) -> Tensor:
    """F = the mean over rows of J' V J, J the Jacobian of a row's outputs by the weights.

    V is the information of the outputs alone: an expectation over what the model itself predicts, taken
    exactly and not by drawing labels, so there is no noise in F and every row counts as it does. The
    labels are not read. A batch costs 1 + m passes.

    Args:
        model: the network in evaluation mode.
        sample: the rows.
        roots: of outputs [B, K] a root of V for each row, [B, m, K]: V = the sum of its m outer products.
        curvature: the diagonal alone, or all of F.
        progress: is told of every batch.

    Returns:
        [d] in the weights' precision, or float64 [d, d]: in float32 the small eigenvalues, which make the
        noise, would be lost.
    """
    weights, full = model.weights, curvature == "full"
    size = count(weights)
    shape, dtype = ((size, size), torch.float64) if full else ((size,), weights[0].dtype)
    total = torch.zeros(shape, dtype=dtype, device=weights[0].device)
    for batch in sample.batches(rows_at_once(size)):
        with torch.no_grad():
            parts = roots(outputs(model, batch.images))
        for cotangents in parts.unbind(1):
            progress.check()
            gradients = _row_gradients(model, batch.images, cotangents)
            if full:
                rows = flat(gradients, start=1).double()
                total.addmm_(rows.T, rows)
            else:
                total += flat([gradient.square().sum(0) for gradient in gradients])
        progress.advance()
    return total / len(sample)


def categorical(logits: Tensor) -> Tensor:
    """The root of a classifier's information, [B, K, K] of logits [B, K]: sqrt(p_c) (e_c - p) for each c."""
    chances = logits.softmax(1)
    deviations = torch.eye(chances.shape[1], dtype=chances.dtype, device=chances.device) - chances[:, None]
    return chances.sqrt()[:, :, None] * deviations


def shaped(unit: Tensor, information: Tensor, parameters: FisherForgetting) -> Tensor:
    """Turn columns of unit noise [d, m] into noise of covariance alpha * (F + damping I)^(-1/2)."""
    length = math.sqrt(parameters.noise)
    if information.dim() == 1:
        sizes: Tensor = (information + parameters.damping).pow(-0.25)
        return length * (sizes[:, None] * unit)
    values, vectors = torch.linalg.eigh(information)
    sizes = (values.clamp_min(0) + parameters.damping).pow(-0.25)  # rounding leaves some just below 0
    noise: Tensor = length * (vectors @ (sizes[:, None] * (vectors.T @ unit)))
    return noise


def rows_at_once(size: int) -> int:
    """Of how many rows the gradients are held at once.

    It does not depend on the memory that happens to be free, which would change the sums' last bits.
    """
    return max(1, min(_MOST_ROWS, _MOST_ELEMENTS // size))


def _row_gradients(model: Differentiable, images: Tensor, cotangents: Tensor) -> list[Tensor]:
    """The gradient of each row's output along its cotangent: a tensor [B, ...] a weight."""

    def along(weights: list[Tensor], image: Tensor, cotangent: Tensor) -> Tensor:
        return (outputs(model, image[None], weights)[0] * cotangent).sum()

    weights = [weight.detach() for weight in model.weights]
    gradients: list[Tensor] = vmap(grad(along), in_dims=(None, 0, 0))(weights, images, cotangents)
    return gradients


def _refuse_oversize(weights: list[Tensor], curvature: Literal["diagonal", "full"], at_once: int) -> None:
    size, item = count(weights), weights[0].element_size()
    if curvature == "full":
        needed = _MATRICES * 8 * size**2 + at_once * size * (2 * item + 8)
    else:
        needed = (2 * at_once + 4) * size * item
    refuse_unless_fits(
        f"fisher_forgetting with curvature={curvature} on {size} weights", needed, weights[0].device
    )
