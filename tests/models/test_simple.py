"""The plain networks have their published sizes, and their options do what they say."""

import pytest
import torch
from torch import nn

from fedbb.errors import RecipeError
from fedbb.models.registry import build_model


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("shape", "classes", "expected"),
    [
        # NIID-Bench's simple CNN on CIFAR-10, and on Fashion-MNIST.
        ((3, 32, 32), 10, 62_006),
        ((1, 28, 28), 10, 44_426),
        ((1, 16, 20), 2, 16_866),
    ],
)
def test_lenet_has_the_stated_number_of_parameters(shape, classes, expected):
    assert parameters(build_model("lenet", classes, shape)) == expected


def test_lenet_returns_its_stages_and_its_embedding():
    outputs = build_model("lenet", 10, (3, 32, 32))(torch.rand(2, 3, 32, 32))
    assert outputs.embedding.shape == (2, 84)
    assert [tuple(stage.shape) for stage in outputs.stages] == [(2, 6, 14, 14), (2, 16, 5, 5)]


@pytest.mark.parametrize("shape", [(1, 15, 32), (64,), (1, 8, 8, 8)])
def test_lenet_refuses_what_is_no_image_or_too_small(shape):
    with pytest.raises(RecipeError, match=r"lenet takes images .* from 16×16"):
        build_model("lenet", 10, shape)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # McMahan's 2NN on MNIST.
        ({}, 199_210),
        ({"hidden": [12]}, 784 * 12 + 12 + 12 * 10 + 10),
        ({"hidden": []}, 7_850),
    ],
)
def test_mlp_has_the_stated_number_of_parameters(options, expected):
    assert parameters(build_model("mlp", 10, (1, 28, 28), options=options)) == expected


def test_linear_is_the_mlp_without_hidden_layers_on_inputs_of_any_shape():
    network = build_model("linear", 3, (2, 4, 5, 6))
    assert parameters(network) == 240 * 3 + 3
    inputs = torch.rand(2, 2, 4, 5, 6)
    expected = inputs.flatten(1) @ network.fc.weight.T + network.fc.bias
    assert torch.allclose(network(inputs).logits, expected)


def test_dropout_of_an_mlp_acts_in_training_only():
    network = build_model("mlp", 3, (64,), options={"hidden": [50], "dropout": 0.5})
    inputs = torch.rand(4, 64)
    torch.manual_seed(0)
    dropped = network.train()(inputs).embedding
    whole = network.eval()(inputs).embedding
    assert (dropped == 0).sum() > (whole == 0).sum()
    assert torch.equal(whole, network(inputs).embedding)


@pytest.mark.parametrize("name", ["mlp", "lenet", "linear"])
def test_moon_gets_a_projection_head(name):
    network = build_model(name, 3, (1, 16, 16), projection=True)
    assert network(torch.rand(2, 1, 16, 16)).embedding.shape == (2, 256)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("mlp", {"hidden": [0]}, r"model.options.hidden is \[0\]; allowed are units above 0"),
        ("mlp", {"hidden": [2.5]}, r"model.options.hidden is \[2.5\]"),
        ("mlp", {"dropout": 1.0}, "model.options.dropout is 1.0; allowed is 0 to below 1"),
        ("mlp", {"hiden": [3]}, r"model.options.hiden is unknown to mlp; did you mean hidden\?"),
        ("linear", {"hidden": [3]}, "model.options.hidden is unknown to linear"),
        ("lenet", {"projection": True}, "model.options.projection is unknown to lenet"),
    ],
)
def test_options_that_are_wrong_or_unknown_are_refused(name, options, reason):
    with pytest.raises(RecipeError, match=reason):
        build_model(name, 3, (1, 16, 16), options=options)
