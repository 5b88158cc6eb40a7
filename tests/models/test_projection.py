"""MOON's head sits between embedding and classifier, and costs what is stated for it."""

import pytest
import torch
from torch import nn

from fedbb.models.projection import Projection
from fedbb.models.registry import MODELS, build_model
from fedbb.models.resnet_cifar import resnet56
from fedbb.rng import torch_stream


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("classes", "expected"), [(10, 722_906), (14, 723_934), (100, 746_036), (200, 771_736)]
)
def test_resnet56_with_the_head_has_the_stated_number_of_parameters(
    classes: int, expected: int
) -> None:
    assert parameters(resnet56(classes, projection=True)) == expected


def test_the_head_is_two_linear_maps_with_a_rectifier_between() -> None:
    head = Projection(2)
    head.inner.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    head.inner.bias.data = torch.tensor([0.0, 1.0])
    head.outer.weight.data = torch.ones(256, 2)
    head.outer.bias.data = torch.arange(256.0)
    projected = head(torch.tensor([[-5.0, 3.0]]))
    assert torch.equal(projected, 4 + torch.arange(256.0)[None])


@pytest.mark.parametrize("name", MODELS)
def test_with_the_head_the_embedding_is_the_projection_and_the_classifier_sits_on_it(
    name: str,
) -> None:
    network = build_model(name, 5, 1, projection=True).eval()
    outputs = network(torch.rand(2, 1, 32, 32))
    assert outputs.embedding.shape == (2, 256)
    assert network.fc.weight.shape == (5, 256)
    torch.testing.assert_close(network.fc(outputs.embedding), outputs.logits)


@pytest.mark.parametrize("name", MODELS)
def test_the_head_adds_its_four_parameters_and_without_it_a_network_holds_none(name: str) -> None:
    keys = build_model(name, 5, 1).state_dict().keys()
    added = build_model(name, 5, 1, projection=True).state_dict().keys() - keys
    assert not any("projection" in key for key in keys)
    layers = ("inner", "outer")
    assert added == {
        f"projection.{layer}.{part}" for layer in layers for part in ("weight", "bias")
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_of_one_image_keeps_its_shape_and_trains_the_head(name: str) -> None:
    with torch_stream(1, "test"):
        network = build_model(name, 3, 1, projection=True)
        outputs = network(torch.rand(1, 1, 16, 16))
    assert outputs.embedding.shape == (1, 256)
    outputs.logits.square().sum().backward()
    assert all(parameter.grad.any() for parameter in network.projection.parameters())
