"""A state dict of torchvision's shape goes into our network and means the same there."""

import math

import pytest
import torch
from torch import Tensor

from fedbb.errors import DataError
from fedbb.models.efficientnet import EfficientNetB0
from fedbb.models.torchvision_weights import load_torchvision
from fedbb.rng import torch_stream
from reference.efficientnet import efficientnet_logits, published_shapes


def published(classes: int = 1000) -> dict[str, Tensor]:
    """Return random tensors under torchvision's names, of a size that keeps signals alive."""
    with torch_stream(0, "published"):
        return {name: tensor(name, shape) for name, shape in published_shapes(classes).items()}


def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
    if name.endswith("num_batches_tracked"):
        return torch.tensor(9)
    if len(shape) == 4:
        return torch.randn(shape) * math.prod(shape[1:]) ** -0.5
    if len(shape) == 2:
        return torch.randn(shape) * shape[1] ** -0.5
    return torch.rand(shape) + 0.5 if "running_var" in name else torch.randn(shape) * 0.3 + 0.5


def test_the_names_written_out_by_rule_hold_the_published_number_of_parameters() -> None:
    """5,288,548 parameters, 42,016 running statistics, 49 counters, 360 tensors in all."""
    shapes = published_shapes(1000)
    statistics = {name for name in shapes if "running" in name}
    counters = {name for name in shapes if name.endswith("tracked")}
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    assert sum(sizes[name] for name in statistics) == 42_016
    assert (len(shapes), len(counters)) == (360, 49)
    assert sum(sizes.values()) - 42_016 - 49 == 5_288_548


def test_our_network_with_published_weights_is_the_slow_reference() -> None:
    network, weights = EfficientNetB0(1000), published()
    kept = load_torchvision(network, weights)
    images = torch.rand(2, 3, 64, 64)
    assert kept == ()
    expected = efficientnet_logits(weights, images)
    torch.testing.assert_close(network.eval()(images).logits, expected, rtol=1e-4, atol=1e-4)
    assert network.stem[1].num_batches_tracked == 9


def test_one_channel_is_taken_as_three_equal_ones() -> None:
    network, weights = EfficientNetB0(1000, channels=1), published()
    load_torchvision(network, weights)
    grey = torch.rand(2, 1, 64, 64)
    expected = efficientnet_logits(weights, grey.expand(-1, 3, -1, -1))
    torch.testing.assert_close(network.eval()(grey).logits, expected, rtol=1e-4, atol=1e-4)


def test_a_classifier_of_other_classes_keeps_its_own_start() -> None:
    network, weights = EfficientNetB0(14), published()
    start = network.fc.weight.clone()
    assert load_torchvision(network, weights) == ("fc.weight", "fc.bias")
    assert torch.equal(network.fc.weight, start)
    assert torch.equal(network.top[0].weight, weights["features.8.0.weight"])


def test_a_projection_and_the_classifier_on_it_keep_their_own_start() -> None:
    network = EfficientNetB0(10, projection=True)
    kept = load_torchvision(network, published(classes=1000))
    parts = ("inner.weight", "inner.bias", "outer.weight", "outer.bias")
    assert kept == (*(f"projection.{part}" for part in parts), "fc.weight", "fc.bias")


def test_a_bias_that_happens_to_fit_does_not_go_below_a_projection() -> None:
    network = EfficientNetB0(10, projection=True)
    start = network.fc.bias.clone()
    load_torchvision(network, published(classes=10))
    assert torch.equal(network.fc.bias, start)


def test_published_tensors_are_copied_not_shared() -> None:
    network, weights = EfficientNetB0(1000), published()
    load_torchvision(network, weights)
    weights["features.8.0.weight"].zero_()
    assert network.top[0].weight.any()


def test_counters_may_be_absent_as_in_old_files() -> None:
    weights = {name: value for name, value in published().items() if "tracked" not in name}
    assert load_torchvision(EfficientNetB0(1000), weights) == ()


def test_missing_and_unknown_names_are_told() -> None:
    weights = published()
    weights["features.9.0.weight"] = weights.pop("features.8.0.weight")
    with pytest.raises(DataError) as caught:
        load_torchvision(EfficientNetB0(1000), weights)
    message = str(caught.value)
    assert "torchvision's efficientnet_b0" in message
    assert "1 of its names are missing, such as 'features.8.0.weight'" in message
    assert "1 of its names are unknown, such as 'features.9.0.weight'" in message


def test_a_tensor_of_another_shape_is_refused_and_nothing_is_changed() -> None:
    network, weights = EfficientNetB0(1000), published()
    weights["features.3.0.block.1.0.weight"] = torch.zeros(144, 1, 3, 3)
    before = network.stem[0].weight.clone()
    with pytest.raises(DataError, match=r"features.3.0.block.1.0.weight has .*144, 1, 5, 5"):
        load_torchvision(network, weights)
    assert torch.equal(network.stem[0].weight, before)
