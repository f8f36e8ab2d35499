"""What a network's last linear layer sees: the features that its logits are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

FeaturesOf = Callable[[Tensor], Tensor | None]


@contextmanager
def penultimate(network: nn.Module) -> Iterator[FeaturesOf]:
    """While it lasts, a function that gives the features of the logits that the network just computed.

    They come from the same forward pass: [B, d], what went into the `nn.Linear` that gave the logits. They
    are None where the logits are no linear layer's very output, as those of SqueezeNet, which ends in a
    convolution. Auxiliary heads have no say. No hook is left behind.

        with penultimate(network) as features_of:
            logits = network(images)
            features = features_of(logits)
    """
    newest: list[tuple[Tensor, Tensor]] = []  # of the linear layer called last: what came in and went out

    def remember(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        newest[:] = [(inputs[0], output)]

    def features_of(logits: Tensor) -> Tensor | None:
        features, output = newest[0] if newest else (None, None)
        return features if output is logits else None

    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_hook(remember) for module in linear]
    try:
        yield features_of
    finally:
        for hook in hooks:
            hook.remove()
