from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from app.jobs.params import SklearnDigits
from models_store.rows import RowSet
from workers.data.batches import Rows
from workers.data.digits import DigitsReader
from workers.data.loading import load
from workers.methods.probe import ALPHAS, MASK_FRACTIONS, probe
from workers.methods.run import Run
from workers.nets.network import Network


@pytest.fixture(scope="module")
def unseen() -> Rows:
    """Digits that the network has never seen."""
    return Rows.of(*load(DigitsReader("", SklearnDigits()), RowSet.of(range(160, 460)), (8, 8, 1)))


def test_the_balance_is_that_of_the_gradients(
    start: Callable[..., Run], two_layers: Network, brute_gradient: Callable[[Tensor, Rows], Tensor]
) -> None:
    """Lengths, angle, ratios and what masks hold, from written-out gradients."""
    run = start(network=copy.deepcopy(two_layers))
    found = probe(run, steps=2)
    at = parameters_to_vector(two_layers.parameters()).detach()
    keep, forget = (brute_gradient(at, rows.take(slice(None))) for rows in (run.retain, run.forget))
    assert found["gradients"] == {
        "retain": pytest.approx(float(keep.norm())),
        "forget": pytest.approx(float(forget.norm())),
        "cosine": pytest.approx(float(keep @ forget / keep.norm() / forget.norm())),
        "even_alpha": pytest.approx(float(forget.norm() / (keep.norm() + forget.norm()))),
    }
    for trial in found["alphas"]:
        alpha = trial["alpha"]
        ratio = float((alpha * keep).norm() / ((1 - alpha) * forget).norm())
        assert trial["ratio"] == pytest.approx(ratio)
    for trial in found["mask_fractions"]:
        marked = forget.abs().argsort(descending=True)[: round(trial["mask_fraction"] * len(forget))]
        assert trial["forget_share"] == pytest.approx(float(forget[marked].norm() / forget.norm()) ** 2)
        assert trial["retain_share"] == pytest.approx(float(keep[marked].norm() / keep.norm()) ** 2)


def test_without_unseen_rows_the_even_alpha_is_recommended(start: Callable[..., Run]) -> None:
    """Nothing is tried, and the reason is given."""
    found = probe(start(), steps=2)
    assert found["recommended"]["alpha"] == found["gradients"]["even_alpha"]
    assert all(trial["score"] is None for trial in found["alphas"])
    assert "too few validation rows" in found["reasons"][-1]


def test_what_scores_best_is_recommended(start: Callable[..., Run], unseen: Rows) -> None:
    """Each trial starts at the original weights, which are there again afterwards."""
    run = start(validation=unseen)
    before = [tensor.clone() for tensor in run.network.state_dict().values()]
    found = probe(run, steps=20, precision="fp32")
    assert all(
        torch.equal(old, now) for old, now in zip(before, run.network.state_dict().values(), strict=True)
    )
    assert [trial["alpha"] for trial in found["alphas"]] == list(ALPHAS)
    assert [trial["mask_fraction"] for trial in found["mask_fractions"]] == list(MASK_FRACTIONS)
    for name, trials in (("alpha", found["alphas"]), ("mask_fraction", found["mask_fractions"])):
        best = max(trials, key=lambda trial: trial["score"])
        assert found["recommended"][name] == best[name]
    assert found["passes"] == 2 + 20 * 2 * len(ALPHAS) + (20 * 2 + 1) * len(MASK_FRACTIONS)
    assert probe(start(validation=unseen), steps=20, precision="fp32")["alphas"] == found["alphas"]
