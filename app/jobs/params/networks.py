"""Networks of the allow-list: our own, any torchvision classifier, and plugins that the operator approved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, TypeAdapter

from app.jobs.params.types import STRICT

Argument = bool | int | float | str | tuple[int, ...]
_RESERVED = frozenset({"num_classes", "weights", "weights_backbone", "progress"})


def _leaves_ours_alone(arguments: Mapping[str, Argument]) -> Mapping[str, Argument]:
    if reserved := sorted(_RESERVED & set(arguments)):
        raise ValueError(f"{', '.join(reserved)} cannot be set: the class count comes from the data set")
    return arguments


Arguments = Annotated[
    Mapping[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")], Argument],
    Field(max_length=32),
    AfterValidator(_leaves_ours_alone),
]
Channels = Annotated[tuple[float, ...], Field(min_length=1, max_length=3)]


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """Fixed constants that normalise a network's input: (pixel / 255 - mean) / std, one of each a channel.

    A single value holds for all channels. A network without fixed constants takes mean and standard deviation
    of the rows that it is trained on.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    mean: Annotated[Channels, Field(examples=[[0.485, 0.456, 0.406]])]
    std: Annotated[
        tuple[Annotated[float, Field(gt=0, le=100)], ...],
        Field(min_length=1, max_length=3, examples=[[0.229, 0.224, 0.225]]),
    ]


BuiltInName = Literal[
    "small_cnn",
    "resnet8",
    "resnet14",
    "resnet20",
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenet_v2",
    "vit_small",
]


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """A network of our own, for small images; input and class counts come from the data set.

    All but `small_cnn` are published networks as they are used on CIFAR. `resnet8`, `resnet14`, `resnet20`
    and, wider, `resnet18` and `resnet50` begin with a 3x3 convolution and have no max-pool; `vgg16` has batch
    normalisation and one linear layer; `mobilenet_v2` halves the sides three times instead of five;
    `vit_small` cuts images into patches of 4x4 pixels. None drops out.

    `width` multiplies every layer's channel count: 16 in the first layer of `small_cnn` and the three
    narrow ResNets, 64 in that of the two wide ones and `vgg16`. `mobilenet_v2` rounds to multiples of 8 and
    keeps 1280 last channels at least; `vit_small` has heads of 64 channels, 6 at width 1.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    family: Literal["builtin"] = "builtin"
    name: BuiltInName = "small_cnn"
    width: Annotated[float, Field(gt=0, le=16)] = 1.0
    normalisation: Normalisation | None = None


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Which sides of an image a network takes, in pixels."""

    least: int = 1
    multiple_of: int = 1

    def __str__(self) -> str:
        multiples = f" in multiples of {self.multiple_of}" if self.multiple_of > 1 else ""
        return f"sides of at least {self.least} pixels{multiples}"


# Where batch normalisation comes last there must be several values of a channel even in a batch of one row:
# the last of three halvings leaves that of 9 pixels, the last but one of five of 32.
SIDES: Mapping[BuiltInName, Sides] = {
    "resnet18": Sides(least=9),
    "resnet50": Sides(least=9),
    "vgg16": Sides(least=32),
    "mobilenet_v2": Sides(least=9),
    "vit_small": Sides(least=4, multiple_of=4),
}


TORCHVISION_CLASSIFIERS = (
    *("alexnet", "convnext_base", "convnext_large", "convnext_small", "convnext_tiny", "densenet121"),
    *("densenet161", "densenet169", "densenet201", "efficientnet_b0", "efficientnet_b1", "efficientnet_b2"),
    *("efficientnet_b3", "efficientnet_b4", "efficientnet_b5", "efficientnet_b6", "efficientnet_b7"),
    *("efficientnet_v2_l", "efficientnet_v2_m", "efficientnet_v2_s", "googlenet", "inception_v3", "maxvit_t"),
    *("mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3", "mobilenet_v2", "mobilenet_v3_large"),
    *("mobilenet_v3_small", "regnet_x_16gf", "regnet_x_1_6gf", "regnet_x_32gf", "regnet_x_3_2gf"),
    *("regnet_x_400mf", "regnet_x_800mf", "regnet_x_8gf", "regnet_y_128gf", "regnet_y_16gf"),
    *("regnet_y_1_6gf", "regnet_y_32gf", "regnet_y_3_2gf", "regnet_y_400mf", "regnet_y_800mf"),
    *("regnet_y_8gf", "resnet101", "resnet152", "resnet18", "resnet34", "resnet50", "resnext101_32x8d"),
    *("resnext101_64x4d", "resnext50_32x4d", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0"),
    *("shufflenet_v2_x1_5", "shufflenet_v2_x2_0", "squeezenet1_0", "squeezenet1_1", "swin_b", "swin_s"),
    *("swin_t", "swin_v2_b", "swin_v2_s", "swin_v2_t", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16"),
    *("vgg16_bn", "vgg19", "vgg19_bn", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32"),
    *("wide_resnet101_2", "wide_resnet50_2"),
)


def _is_classifier(name: str) -> str:
    if name not in TORCHVISION_CLASSIFIERS:
        raise ValueError("is not the name of a torchvision classifier")
    return name


@dataclass(frozen=True, kw_only=True)
class Torchvision:
    """A classifier of torchvision.models, by its name and the keyword arguments of its builder.

    Weights files have the very keys of torchvision's `state_dict`. Images of one channel are given to it
    three times over.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    family: Literal["torchvision"]
    name: Annotated[str, AfterValidator(_is_classifier), Field(examples=["resnet18"])]
    arguments: Arguments = field(default_factory=dict)
    normalisation: Normalisation | None = None


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A network that a package installed by the operator offers, and that EXPUNGE_NETWORK_PLUGINS names."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    family: Literal["plugin"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,62}$")]
    arguments: Arguments = field(default_factory=dict)
    normalisation: Normalisation | None = None


def _family(value: object) -> Any:  # noqa: ANN401  (whatever the caller sent; pydantic judges it)
    given = value.get("family", "builtin") if isinstance(value, Mapping) else getattr(value, "family", None)
    return given if isinstance(given, str) else None


Architecture = Annotated[
    Annotated[BuiltIn, Tag("builtin")]
    | Annotated[Torchvision, Tag("torchvision")]
    | Annotated[Plugin, Tag("plugin")],
    Discriminator(_family),
]
ARCHITECTURE: TypeAdapter[BuiltIn | Torchvision | Plugin] = TypeAdapter(Architecture)


def misfit(architecture: Architecture, image_shape: Sequence[int]) -> str | None:
    """Why a network of ours takes no images of this height, width and channels; None if nothing is known."""
    takes = SIDES.get(architecture.name, Sides()) if isinstance(architecture, BuiltIn) else Sides()
    height, width = image_shape[:2]
    if min(height, width) >= takes.least and not height % takes.multiple_of and not width % takes.multiple_of:
        return None
    return f"{architecture.name} takes images with {takes}; these have {height} x {width}"


def architecture_schema() -> dict[str, Any]:
    """JSON schema of an architecture."""
    return ARCHITECTURE.json_schema()
