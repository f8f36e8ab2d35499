"""A network with coarser weights: what only fine differences of the weights hide comes back.

Unlearning may move each weight by less than the step of the format that a network is served in, and then
rounding undoes it: of language models, 4 bits bring back what 8 bits do not (Zhang et al. 2025, "Catastrophic
failure of LLM unlearning via quantization"). So the accuracy on F and the attacks are measured on such copies
too, and on the same copies of the reference: rounding costs every network something.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

AnyNetwork = TypeVar("AnyNetwork", bound=nn.Module)


@torch.no_grad()
def quantised(network: AnyNetwork, bits: int) -> AnyNetwork:
    """A copy whose weights are whole multiples, from -q to q, of one step a tensor; q = 2^(bits - 1) - 1.

    The step is the tensor's largest magnitude / q, so that 0 stays 0 and the largest stays what it is;
    halves go to the even neighbour. Rounded are the weights of linear layers and convolutions and whatever
    else has two dimensions longer than 1, as embeddings. Biases, normalisation, scales a channel and running
    statistics are kept, as real integer inference keeps them; so is a tensor that is not finite. Values stay
    float32: what is measured is the rounding, not a kernel.

    Args:
        bits: at least 2; 8 and 4 are usual.
    """
    if bits < 2:
        raise ValueError(f"{bits} bits hold no sign and value")
    rounded = copy.deepcopy(network)
    for weight in rounded.parameters():
        if sum(side > 1 for side in weight.shape) > 1:
            weight.copy_(_on_grid(weight, 2 ** (bits - 1) - 1))
    return rounded


def _on_grid(weight: Tensor, most: int) -> Tensor:
    step = weight.abs().max() / most
    if not bool(step.isfinite()) or not step:
        return weight
    return (weight / step).round_().clamp_(-most, most) * step
