"""The plain networks have their published sizes, and their options do what they say."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbb.errors import RecipeError
from fedbb.models.registry import build_model
from fedbb.models.small import SmallCNN
from fedbb.rng import torch_stream
from reference.macs import count_macs


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
        ("mlp", {"hidden": [0]}, r"model.options.hidden is \[0\]; allowed: units above 0"),
        ("mlp", {"hidden": [2.5]}, r"model.options.hidden is \[2.5\]"),
        ("mlp", {"dropout": 1.0}, "model.options.dropout is 1.0; allowed: 0 to below 1"),
        ("mlp", {"hiden": [3]}, r"model.options.hiden is unknown to mlp; did you mean hidden\?"),
        ("linear", {"hidden": [3]}, "model.options.hidden is unknown to linear"),
        ("lenet", {"projection": True}, "model.options.projection is unknown to lenet"),
    ],
)
def test_options_that_are_wrong_or_unknown_are_refused(name, options, reason):
    with pytest.raises(RecipeError, match=reason):
        build_model(name, 3, (1, 16, 16), options=options)


@pytest.mark.parametrize("side", [8, 9, 16, 28, 32, 64, 150])
def test_outputs_have_the_shapes_of_any_image_size(side: int) -> None:
    outputs = SmallCNN(5)(torch.rand(2, 3, side, side))
    half = side // 2
    assert outputs.logits.shape == (2, 5)
    assert outputs.embedding.shape == (2, 128)
    assert [tuple(stage.shape) for stage in outputs.stages] == [
        (2, 16, half, half),
        (2, 32, half, half),
    ]


def test_it_has_the_parameters_one_can_count_by_hand() -> None:
    """conv 3·9·16+16, conv 16·9·32+32, hidden 512·128+128, linear 128·10+10."""
    sizes = [parameter.numel() for parameter in SmallCNN(10).parameters()]
    assert sizes == [432, 16, 4608, 32, 65_536, 128, 1280, 10]


def test_a_forward_pass_costs_the_multiplications_one_can_count_by_hand() -> None:
    expected = 32 * 32 * 432 + 16 * 16 * 4608 + 65_536 + 1280
    assert count_macs(SmallCNN(10), (3, 32, 32)) == expected


def test_it_has_no_buffers_so_training_and_evaluation_agree() -> None:
    network = SmallCNN(10, channels=1)
    images = torch.rand(3, 1, 8, 8)
    assert list(network.buffers()) == []
    assert torch.equal(network.train()(images).logits, network.eval()(images).logits)


def test_logits_are_a_linear_function_of_the_embedding() -> None:
    network = SmallCNN(4)
    outputs = network(torch.rand(3, 3, 8, 8))
    torch.testing.assert_close(outputs.logits, network.fc(outputs.embedding))
    assert (outputs.embedding >= 0).all()


def test_state_dict_keys_are_the_four_layers() -> None:
    layers = ("conv1", "conv2", "hidden", "fc")
    expected = [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    assert list(SmallCNN(2).state_dict()) == expected


@pytest.mark.parametrize("batch", [1, 8])
def test_gradient_reaches_every_parameter(batch: int) -> None:
    with torch_stream(0, "test"):
        network = SmallCNN(3, channels=1)
        images = torch.rand(batch, 1, 8, 8)
    F.cross_entropy(network(images).logits, torch.arange(batch) % 3).backward()
    still = [name for name, weight in network.named_parameters() if not weight.grad.any()]
    assert still == []


@pytest.mark.parametrize("name", ["lenet", "small-cnn"])
def test_the_rectifier_after_the_maximum_gives_the_bits_of_the_usual_order(name) -> None:
    """The published networks rectify first; equal pixels, as in flat regions, must not matter."""
    with torch_stream(0, "test"):
        network = build_model(name, 10, (3, 32, 32))
        images = torch.randint(0, 3, (6, 3, 32, 32)).float()
    images[:3] = images[:3, :, :1, :1]  # every window of these has equal values
    first = F.max_pool2d(F.relu(network.conv1(images)), kernel_size=2)
    given = network(images).stages[0]
    assert torch.equal(given, first)
    gradients = [
        torch.autograd.grad((stage**2).sum(), list(network.conv1.parameters()))
        for stage in (given, first)
    ]
    assert all(torch.equal(ours, usual) for ours, usual in zip(*gradients, strict=True))
