from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from app.jobs.params import BuiltIn, BuiltInName
from workers.audit.quantisation import quantised
from workers.nets.factory import build
from workers.nets.network import Network


def _one_layer(weight: list[list[float]]) -> nn.Linear:
    with torch.device("meta"):
        layer = nn.Linear(len(weight[0]), len(weight))
    bias = torch.linspace(0.11, 0.77, len(weight))
    layer.load_state_dict({"weight": torch.tensor(weight), "bias": bias}, assign=True)
    return layer


def _network(name: BuiltInName) -> Network:
    return build(BuiltIn(name=name, width=0.25), 5, (32, 32, 3), torch.Generator().manual_seed(0))


def _is_rounded(tensor: Tensor) -> bool:
    return sum(side > 1 for side in tensor.shape) > 1


def test_a_tensor_worked_by_hand() -> None:
    """Four bits: the step is 14 / 7 = 2. Half-way, 3 and 5 go to 4, and -1 to 0; of the others 1.1 to 2."""
    layer = _one_layer([[14.0, 3.0, 5.0, -1.0], [0.9, 1.1, -13.1, -7.4]])
    found = quantised(layer, 4)
    assert found.weight.tolist() == [[14.0, 4.0, 4.0, 0.0], [0.0, 2.0, -14.0, -8.0]]
    assert torch.equal(found.bias, layer.bias)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["resnet8", "mobilenet_v2", "vit_small"])
def test_agrees_with_torch(name: BuiltInName, bits: int) -> None:
    """Every weight is torch's own rounding of it, of at most 2^bits - 1 values; all else is as it was."""
    network = _network(name)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    learned = dict(network.named_parameters())
    most = 2 ** (bits - 1) - 1
    for key, tensor in quantised(network, bits).state_dict().items():
        if key not in learned or not _is_rounded(tensor):
            assert torch.equal(tensor, before[key]), key
            continue
        step = float(before[key].abs().max()) / most
        expected = torch.fake_quantize_per_tensor_affine(before[key], step, 0, -most, most)
        torch.testing.assert_close(tensor, expected, rtol=1e-6, atol=1e-9)
        assert len(tensor.unique()) <= 2 * most + 1
        assert not torch.equal(tensor, before[key])
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


def test_the_grid_is_exact_and_rounding_again_changes_nothing() -> None:
    """Every weight is a whole number times one step, to the last bit."""
    once = quantised(_network("small_cnn"), 4)
    weight = once.get_parameter("body.classifier.weight")
    step = weight.detach().abs().max() / 7
    assert set((weight / step).round().flatten().tolist()) <= set(range(-7, 8))
    torch.testing.assert_close((weight / step).round() * step, weight.detach(), rtol=2e-7, atol=0)
    twice = quantised(once, 4)
    for key, tensor in once.state_dict().items():
        torch.testing.assert_close(twice.state_dict()[key], tensor, rtol=2e-7, atol=0)


def test_a_small_move_is_undone() -> None:
    """What moves weights by less than half a step is not there at four bits, and still is at sixteen."""
    before = _one_layer([[7.0, 3.2, -2.1], [1.0, -4.3, 0.2]])
    after = _one_layer([[7.0, 3.1, -2.2], [1.1, -4.2, 0.3]])
    assert torch.equal(quantised(before, 4).weight, quantised(after, 4).weight)
    assert not torch.equal(quantised(before, 16).weight, quantised(after, 16).weight)


def test_scales_a_channel_are_no_weights() -> None:
    """ConvNeXt's [C, 1, 1], which are tiny and unlike each other."""
    network = nn.ParameterList([torch.tensor([1e-6, 0.3, 2.0])[:, None, None]])
    assert torch.equal(quantised(network, 4)[0], network[0])


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_nothing_to_round(value: float) -> None:
    """Zeros stay, and a tensor that is not finite is left as it is."""
    layer = _one_layer([[1.0, 2.6, 0.3], [0.1, 0.2, 0.3]])
    layer.weight.data[0, 0] = value
    if value == 0:
        layer.weight.data.zero_()
    torch.testing.assert_close(quantised(layer, 4).weight, layer.weight, rtol=0, atol=0, equal_nan=True)


def test_one_bit_is_too_few() -> None:
    """It holds a sign and nothing else."""
    with pytest.raises(ValueError, match="1 bits"):
        quantised(nn.Identity(), 1)
