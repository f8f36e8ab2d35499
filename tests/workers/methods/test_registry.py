from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from app.jobs import params
from models_store.checkpoints import pack
from workers.methods.registry import METHODS
from workers.methods.run import Run
from workers.monitor import Cancelled, Silent

SMALL: dict[str, dict[str, Any]] = {
    "retrain": {},
    "finetune": {"steps": 25, "objective": {"name": "sam"}},
    "gradient_ascent": {"steps": 25, "optimiser": "adamw"},
    "neggrad": {"steps": 25, "objective": {"name": "asam"}},
    "random_label": {"steps": 25, "optimiser": "adamw", "clip_norm": 1.0},
    "salun": {"steps": 25, "objective": {"name": "sam"}},
    "l1_sparse": {"steps": 25},
    "scrub": {"steps": 22, "rounds": 3},
    "influence": {"iterations": 5, "retain_sample": 64},
    "fisher_forgetting": {"retain_sample": 40},
    "gradient_reversal": {"anchor": "initial"},
    "sharp_minmax": {"steps": 25},
}


def test_every_declared_method_exists() -> None:
    """What the API offers and what the workers can do are the same names."""
    assert METHODS.keys() == params.METHODS.keys()


def test_defaults_are_valid_parameters() -> None:
    """Every method can be asked for without naming a parameter, and its schema admits no unknown one."""
    for name, info in params.METHODS.items():
        assert params.method_parameters(name, {}) == info.parameters()
        assert params.method_schema(name)["additionalProperties"] is False


ONE_STEP = ("influence", "fisher_forgetting", "gradient_reversal")


@pytest.mark.parametrize("name", sorted(METHODS.keys() - set(ONE_STEP)))
@pytest.mark.parametrize("killed", [[1], [13], [20, 3]])
def test_resuming_gives_the_same_bits(
    start: Callable[..., Run], stops_after: Any, name: str, killed: list[int]
) -> None:
    """Broken off anywhere and resumed in a fresh run: the undisturbed run's bits, passes and curve."""
    parameters = params.method_parameters(name, SMALL[name])
    whole = start()
    trace = METHODS[name](whole, parameters)
    checkpoint = None
    for steps in killed:
        monitor = stops_after(steps)
        monitor.checkpoint = checkpoint
        with pytest.raises(Cancelled):
            METHODS[name](start(monitor=monitor), parameters)
        checkpoint = monitor.checkpoint
    resumed = start(monitor=Silent(checkpoint))
    resumed_trace = METHODS[name](resumed, parameters)
    for key, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[key]), key
    assert (resumed_trace.passes, resumed_trace.curve) == (trace.passes, trace.curve)


def test_a_checkpoint_of_another_release_is_not_taken(start: Callable[..., Run]) -> None:
    """Steps that kept other tensors are taken anew: the same network comes out."""
    parameters = params.method_parameters("neggrad", SMALL["neggrad"])
    whole, again = start(), start(monitor=Silent(pack({"network.weight": torch.zeros(3)}, {"steps": 13})))
    for run in (whole, again):
        METHODS["neggrad"](run, parameters)
    for key, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[key]), key


@pytest.mark.parametrize("name", ONE_STEP)
def test_what_takes_one_step_begins_again(start: Callable[..., Run], stops_after: Any, name: str) -> None:
    """Broken off before the step, the network is as it was; a second attempt gives the same bits."""
    parameters = params.method_parameters(name, SMALL[name])
    whole, broken = start(), start(monitor=stops_after(0))
    METHODS[name](whole, parameters)
    origin = [tensor.clone() for tensor in broken.network.state_dict().values()]
    with pytest.raises(Cancelled):
        METHODS[name](broken, parameters)
    assert all(torch.equal(a, b) for a, b in zip(origin, broken.network.state_dict().values(), strict=True))
    again = start(network=broken.network)
    METHODS[name](again, parameters)
    for key, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[key]), key


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"gradient_reversal"}))  # which draws nothing
def test_the_seed_decides_every_bit(start: Callable[..., Run], name: str) -> None:
    """Equal seeds give equal networks, another seed another one."""
    parameters = params.method_parameters(name, SMALL[name])
    runs = [start(), start(), start(seed=6)]
    for run in runs:
        METHODS[name](run, parameters)
    first, second, other = (
        torch.cat([t.flatten().double() for t in r.network.state_dict().values()]) for r in runs
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_hundred_steps_leave_ten_checkpoints(start: Callable[..., Run]) -> None:
    """A short job can go on from its middle."""

    class Counting(Silent):
        sizes: tuple[int, ...] = ()

        def save_checkpoint(self, content: bytes) -> None:
            self.sizes += (len(content),)

    monitor = Counting()
    METHODS["finetune"](start(monitor=monitor), params.method_parameters("finetune", {"steps": 100}))
    assert len(monitor.sizes) == 10
