"""One Newton step from the original weights towards the optimum of the remaining rows' loss."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import Influence
from workers.methods.curvature import (
    MeanLoss,
    NoStep,
    Progress,
    Sample,
    count,
    finite,
    move,
    refuse_unless_fits,
)
from workers.methods.run import Run
from workers.training.loop import Trace

_VECTORS = 8  # of conjugate gradient at once: its own five, and three of a product with the Hessian
_RAISE = 4.0  # by which the damping grows where it is too small
_MATRICES = 3  # of the dense solver, in float64: the Hessian, its Cholesky factor, and work space


@dataclass(frozen=True)
class Solution:
    """What a solver found.

    Attributes:
        vector: x [d], for which A x should be b.
        residuals: |b - A x| / |b| after each iteration.
        stopped: why no further iteration was made; `curvature`: x' A x is not positive for every x.
    """

    vector: Tensor
    residuals: list[float]
    stopped: Literal["tolerance", "iterations", "curvature", "solved"]


def influence(run: Run, parameters: Influence) -> Trace:
    """w' = w - scale * (H_R + damping I)^-1 grad L_R(w), with L_R = mean CE over R + weight_decay / 2 |w|^2.

    Guo et al. 2020, section 3: the step is exact where L_R is quadratic. H_R is the true Hessian, over a
    sample of R; the equations are solved to the tolerance and not replaced by a diagonal or by one rank-one
    update, either of which would leave little more than a scaled gradient step. Where H_R + damping I is not
    positive definite, its solution is no minimum but may be anything: the damping is then quadrupled until
    it is (Nocedal & Wright 2006, algorithm 3.3). F is never read.

    Raises:
        TooLarge: the solver's vectors, or the whole Hessian, do not fit into memory.
        NoStep: the iterations did not suffice to find a damping that is large enough, a layer has no second
            derivative, or something is not finite.
    """
    model = run.model("fp32")
    _refuse_oversize(model.weights, parameters)
    run.network.eval()
    retain = Sample(run.retain)
    sample = Sample.drawn(run.retain, parameters.retain_sample, run.seed)
    progress = Progress(run.monitor, total=0)
    loss = MeanLoss(model, _cross_entropy, weight_decay=parameters.weight_decay, progress=progress)
    progress.total = retain.count_batches() + _most_batches(loss, sample, parameters)
    solution, damping = newton_direction(loss, retain, sample, parameters)
    move(model, -parameters.scale * solution.vector)
    run.monitor.progress("unlearn", progress.total, progress.total)
    run.judged.update(
        residual=solution.residuals[-1],
        iterations=len(solution.residuals),
        stopped=solution.stopped,
        damping=damping,
    )
    return Trace(
        steps=1,
        passes=model.passes,
        seconds=time.perf_counter() - run.started,
        curve=[{"residual": residual} for residual in solution.residuals],
    )


def newton_direction(
    loss: MeanLoss, retain: Sample, sample: Sample, parameters: Influence
) -> tuple[Solution, float]:
    """(H + damping I)^-1 g, with the gradient g over all of R and the Hessian H over a sample of it.

    Returns:
        The solution, and the damping that it took: that of the parameters times a power of four.

    Raises:
        NoStep: the iterations did not suffice to find it, a layer has no second derivative, or the gradient
            or the Hessian is not finite.
    """
    gradient = finite(loss.gradient(retain), "the gradient")
    if parameters.solver == "dense":
        return _by_factor(finite(loss.hessian(sample), "the Hessian"), gradient, parameters.damping)

    def product(vector: Tensor) -> Tensor:
        return loss.product(sample, vector)

    return _by_products(product, gradient, parameters)


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], target: Tensor, *, iterations: int, tolerance: float
) -> Solution:
    """Solve A x = b by products with the symmetric matrix A alone (Hestenes & Stiefel 1952), from x = 0.

    Args:
        product: A v of a vector v [d].
        target: b [d].
        iterations: products at most.
        tolerance: the relative residual that is good enough.
    """
    found, residual, direction = torch.zeros_like(target), target.clone(), target.clone()
    residuals: list[float] = []
    length = first = float(residual.dot(residual))
    if first == 0:
        return Solution(found, [0.0], "tolerance")
    for _ in range(iterations):
        image = product(direction)
        curvature = float(direction.dot(image))
        if curvature <= 0:
            return Solution(found, residuals, "curvature")
        found += length / curvature * direction
        residual -= length / curvature * image
        last, length = length, float(residual.dot(residual))
        residuals.append((length / first) ** 0.5)
        if residuals[-1] <= tolerance:
            return Solution(found, residuals, "tolerance")
        direction = residual + length / last * direction
    return Solution(found, residuals, "iterations")


def cholesky(matrix: Tensor, target: Tensor) -> Solution:
    """Solve A x = b by the Cholesky factor of A, float64 [d, d]."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed:
        return Solution(torch.zeros_like(target), [], "curvature")
    wanted = target.double()
    found = torch.cholesky_solve(wanted[:, None], factor)[:, 0]
    missing = (wanted - matrix @ found).norm() / wanted.norm().clamp_min(torch.finfo(wanted.dtype).tiny)
    return Solution(found.to(target.dtype), [float(missing)], "solved")


def _by_products(
    product: Callable[[Tensor], Tensor], gradient: Tensor, parameters: Influence
) -> tuple[Solution, float]:
    damping, left = parameters.damping, parameters.iterations

    def damped(vector: Tensor) -> Tensor:
        return product(vector) + damping * vector

    while left > 0:
        solution = conjugate_gradient(damped, gradient, iterations=left, tolerance=parameters.tolerance)
        if solution.stopped != "curvature":
            return solution, damping
        left -= len(solution.residuals) + 1
        damping *= _RAISE
    raise NoStep("the loss of the remaining rows curves downwards; raise the damping or the iterations")


def _by_factor(hessian: Tensor, gradient: Tensor, damping: float) -> tuple[Solution, float]:
    hessian.diagonal().add_(damping)
    while (solution := cholesky(hessian, gradient)).stopped == "curvature":
        hessian.diagonal().add_((_RAISE - 1) * damping)
        damping *= _RAISE
    return solution, damping


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum")


def _most_batches(loss: MeanLoss, sample: Sample, parameters: Influence) -> int:
    if parameters.solver == "dense":
        return loss.count_hessian_batches(sample)
    return parameters.iterations * sample.count_batches()


def _refuse_oversize(weights: list[Tensor], parameters: Influence) -> None:
    size = count(weights)
    needed = _VECTORS * size * weights[0].element_size()
    if parameters.solver == "dense":
        needed += _MATRICES * 8 * size**2
    refuse_unless_fits(
        f"influence with solver={parameters.solver} on {size} weights", needed, weights[0].device
    )
