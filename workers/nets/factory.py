"""Build a network of the allow-list, with every initial value drawn from one generator."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

import torch
import torchvision
from torch import nn

from app.jobs.params import Architecture, BuiltIn, Normalisation, Plugin, Torchvision, misfit
from workers.nets.built_in import BODIES, initialise
from workers.nets.network import Network

PLUGINS = "expunge.networks"  # the entry-point group; each is called (num_classes, image_shape, **arguments)
_MOST_BYTES = 16 * 1024**3  # of weights: with gradients, momentum and copies several times that are needed
_COLOURS = 3  # the channels that torchvision's classifiers take


class BadArchitecture(Exception):
    """No network can be built so; the message says why."""


def build(
    architecture: Architecture,
    num_classes: int,
    image_shape: tuple[int, int, int],
    generator: torch.Generator,
) -> Network:
    """A freshly initialised network on the CPU, channels last.

    Args:
        architecture: which network of the allow-list, and its arguments.
        num_classes: logits a row.
        image_shape: height, width, channels.
        generator: a CPU generator; the global one is not touched.

    Raises:
        BadArchitecture: the network does not exist, does not take these arguments or such images, or is too
            large.
    """
    channels = image_shape[2]
    _refuse_misfit(architecture.normalisation, channels)
    if isinstance(architecture, BuiltIn):
        make, body_channels = _built_in(architecture, num_classes, image_shape), None
    elif isinstance(architecture, Torchvision):
        make, body_channels = _torchvision(architecture, num_classes), _COLOURS
    else:
        make, body_channels = _plugin(architecture, num_classes, image_shape), None
    network = Network(
        make,
        channels,
        generator,
        body_channels=body_channels,
        normalisation=architecture.normalisation,
    )
    return network.to(memory_format=torch.channels_last)


Make = Callable[[torch.Generator], nn.Module]


def _refuse_misfit(normalisation: Normalisation | None, channels: int) -> None:
    if normalisation is not None and {len(normalisation.mean), len(normalisation.std)} - {1, channels}:
        raise BadArchitecture(
            f"its normalisation must have one value, or one for each of {channels} channels"
        )


def _built_in(architecture: BuiltIn, num_classes: int, image_shape: tuple[int, int, int]) -> Make:
    if fault := misfit(architecture, image_shape):
        raise BadArchitecture(fault)

    def construct() -> nn.Module:
        return BODIES[architecture.name](image_shape, num_classes, architecture.width)

    def make(generator: torch.Generator) -> nn.Module:
        with torch.device("meta"):  # the layers' own initialisation would draw from the global generator
            body = construct()
        body.to_empty(device="cpu")
        initialise(body, generator)
        return body

    _refuse_oversize(construct)
    return make


def _torchvision(architecture: Torchvision, num_classes: int) -> Make:
    def construct() -> nn.Module:
        network: nn.Module = torchvision.models.get_model(
            architecture.name, weights=None, num_classes=num_classes, **_spelled(architecture)
        )
        return network

    _refuse_oversize(construct)
    return _seeded(construct)


def _plugin(architecture: Plugin, num_classes: int, image_shape: tuple[int, int, int]) -> Make:
    found = entry_points(group=PLUGINS, name=architecture.name)
    if not found:
        raise BadArchitecture("no installed package offers a network of this name")
    load = next(iter(found)).load()

    def construct() -> nn.Module:
        network: nn.Module = load(num_classes, image_shape, **architecture.arguments)
        return network

    return _seeded(construct)


def _spelled(architecture: Torchvision) -> dict[str, object]:
    """The arguments as torchvision wants them: lists for sequences, and the initialisation named."""
    named = {"init_weights": True} if architecture.name in ("googlenet", "inception_v3") else {}
    return named | {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in architecture.arguments.items()
    }


def _seeded(construct: Callable[[], nn.Module]) -> Make:
    """Make a network that initialises itself by the global generator, which is left as it was."""

    def make(generator: torch.Generator) -> nn.Module:
        seed = int(torch.randint(2**63 - 1, (1,), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return construct()

    return make


def _refuse_oversize(construct: Callable[[], nn.Module]) -> None:
    """Build it once without memory for its weights. Raises BadArchitecture."""
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = construct()
    except NotImplementedError:
        return  # RegNets compute with their widths as tensors, which have no values here; none is large
    except Exception as fault:
        # Whatever a builder raises of arguments that it does not take, or not so.
        raise BadArchitecture(f"it cannot be built so: {type(fault).__name__}: {fault}") from fault
    size = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    if size > _MOST_BYTES:
        raise BadArchitecture(f"its weights would take {size} bytes, more than {_MOST_BYTES}")
