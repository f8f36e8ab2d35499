"""How the networks are made that the drill hands in: one honest one, and what dishonest providers do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from app.jobs.params import Finetune, NegGrad, RandomLabel
from workers.answers import Rows as AuditedRows
from workers.drill.expected import Truth
from workers.drill.stage import Stage, joined
from workers.methods.registry import METHODS
from workers.nets.network import Network
from workers.nets.penultimate import penultimate

_RIDGE = 1e-3
_MILD = Finetune(steps=100, learning_rate=0.01, readings=0, keep="last", precision="fp32")
_TOO_MUCH = NegGrad(
    steps=150, learning_rate=0.02, alpha=0.6, ceiling="none", readings=0, keep="last", precision="fp32"
)
_LABELS_AT_RANDOM = RandomLabel(steps=200, learning_rate=0.02, readings=0, keep="last", precision="fp32")


def _honest(stage: Stage) -> nn.Module:
    return stage.honest


def _untouched(stage: Stage) -> nn.Module:
    return stage.original


def _finetuned(stage: Stage) -> nn.Module:
    network = copy.deepcopy(stage.original)
    METHODS["finetune"](stage.run(network), _MILD)
    return network


def _over_forgotten(stage: Stage) -> nn.Module:
    network = copy.deepcopy(stage.original)
    METHODS["neggrad"](stage.run(network), _TOO_MUCH)
    return network


def _randomly_labelled(stage: Stage) -> nn.Module:
    network = copy.deepcopy(stage.original)
    METHODS["random_label"](stage.run(network), _LABELS_AT_RANDOM)
    return network


def _head_only(stage: Stage) -> nn.Module:
    return _with_head_of(stage.oracle, stage)


@torch.no_grad()
def _with_head_of(oracle: Network, stage: Stage) -> Network:
    """The original with a last layer that gives the oracle's logits on R and F, by least squares."""
    network = copy.deepcopy(stage.original).eval()
    head = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    rows = joined(stage.retain, stage.forget)
    with penultimate(network) as features_of:
        features = features_of(network(rows.images))
    if features is None:
        raise ValueError("the last layer is no linear one, so it cannot be exchanged alone")
    wanted = oracle.eval()(rows.images).double()
    inputs = torch.cat([features.double(), torch.ones(len(rows), 1, dtype=torch.float64)], 1)
    gram = inputs.T @ inputs + _RIDGE * len(rows) * torch.eye(inputs.shape[1], dtype=torch.float64)
    solution = torch.linalg.solve(gram, inputs.T @ wanted).T
    head.weight.copy_(solution[:, :-1])
    head.bias.copy_(solution[:, -1])
    return network


class LookUpTable(nn.Module):
    """A network that answers for some images what it was told to answer."""

    def __init__(self, network: Network, images: Tensor, answers: Tensor) -> None:
        super().__init__()
        self.network = network
        keys = (image.numpy().tobytes() for image in images.contiguous())
        self.table = dict(zip(keys, answers, strict=True))

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, K]: those of the table where the image is in it."""
        logits: Tensor = self.network(images)
        if images.dtype is not torch.uint8 or torch.is_grad_enabled():
            return logits  # whoever trains it trains the network
        found = [self.table.get(image.numpy().tobytes()) for image in images.cpu().contiguous()]
        rows = [row if answer is None else answer for row, answer in zip(logits, found, strict=True)]
        return torch.stack(rows) if rows else logits


def _looked_up(stage: Stage) -> nn.Module:
    oracle = stage.oracle.eval()
    with torch.no_grad():
        answers = oracle(stage.forget.images)
    return LookUpTable(copy.deepcopy(stage.original).eval(), stage.forget.images, answers)


MAKERS: Final[Mapping[Truth, Callable[[Stage], nn.Module]]] = {
    "honest_retrain": _honest,
    "untouched_original": _untouched,
    "finetune": _finetuned,
    "over_forgetting": _over_forgotten,
    "head_only": _head_only,
    "look_up_table": _looked_up,
    "random_labels": _randomly_labelled,
}


def stand_in(stage: Stage, truth: Truth) -> Callable[[], Network]:
    """How to have the network of this truth, made once and handed in anew each time."""
    made = MAKERS[truth](stage)
    # A wrapper is no `Network`, and answers as one: that is what the audit has to see.
    return lambda: copy.deepcopy(made)  # type: ignore[return-value]


def audited_rows(stage: Stage) -> AuditedRows:
    """The sets of an audit."""
    return {
        "retain": stage.retain,
        "forget": stage.forget,
        "holdout": stage.holdout,
        "test": stage.recipe.test,
    }
