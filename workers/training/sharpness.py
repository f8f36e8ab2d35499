"""Sharpness-aware gradients: SAM (Foret et al. 2021) and ASAM (Kwon et al. 2021), minimised or maximised."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from workers.training import multi_tensor
from workers.training.gradients import Differentiable, Losses

_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Sharpness:
    """How far the loss is looked at from the weights, and what is done with what is seen there.

    `weight` is s * lambda of the rule u = g + s * lambda * (g_perturbed - g): 1 is plain SAM, a negative
    weight maximises sharpness, 0 ignores it (and still pays for the second pass).
    """

    rho: float
    adaptive: bool
    weight: float = 1.0


def ascent(weights: list[Tensor], gradients: list[Tensor], *, rho: float, adaptive: bool) -> list[Tensor]:
    """The step of length rho that raises the loss most, to first order.

    SAM: rho * g / |g|. ASAM: rho * T^2 g / |T g| with T = |w| for every weight, biases and those of batch
    normalisation included, as in the code that Tang & Khanna 2026 released. The norm is over all tensors
    together.
    """
    if not adaptive:
        return multi_tensor.multiply(gradients, rho / (multi_tensor.norm(gradients) + _TINY))
    magnitudes = multi_tensor.magnitude([weight.detach() for weight in weights])
    scaled = multi_tensor.multiply(gradients, magnitudes)
    length = multi_tensor.norm(scaled)
    return multi_tensor.multiply(multi_tensor.multiply(scaled, magnitudes), rho / (length + _TINY))


def momentum_gradient(
    model: Differentiable, loss: Losses, sharpness: Sharpness, momentum: list[Tensor]
) -> list[Tensor]:
    """The gradient at w + s * lambda * eps, eps being the ascent along the momentum instead of a gradient.

    One forward/backward pass, the batch's first (Becker et al. 2024, Momentum-SAM, for minimising). For small
    eps it is the rule of `Sharpness` to first order, whatever the weight: g + s * lambda * (g_eps - g) and
    the gradient at w + s * lambda * eps are both g + s * lambda * H eps.
    """
    shift = ascent(model.weights, momentum, rho=sharpness.rho, adaptive=sharpness.adaptive)
    multi_tensor.multiply_(shift, sharpness.weight)
    return model.gradient(loss, shift, first=True)


def sharp_gradient(
    model: Differentiable,
    loss: Losses,
    sharpness: Sharpness,
    within: list[Tensor] | None = None,
    seen: list[Tensor] | None = None,
) -> list[Tensor]:
    """The combined gradient u of one SAM step: two forward/backward passes over the same batch.

    Args:
        model: the network; only the first pass moves its running statistics.
        loss: evaluated twice; it must use the same batch both times.
        sharpness: the rule.
        within: bool masks of the weights that may be perturbed; all of them if None.
        seen: bool masks that the perturbed gradient alone is multiplied by; none if None.
    """
    own = model.gradient(loss)
    perturbing = own if within is None else multi_tensor.multiply(own, within)
    shift = ascent(model.weights, perturbing, rho=sharpness.rho, adaptive=sharpness.adaptive)
    perturbed = model.gradient(loss, shift)
    if seen is not None:
        perturbed = multi_tensor.multiply(perturbed, seen)
    # A weight of 1 gives the perturbed gradient to the last bit, and equal gradients give themselves.
    return multi_tensor.interpolate(own, perturbed, sharpness.weight)
