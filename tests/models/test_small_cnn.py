"""The small network works on any image from 8×8 and has no buffers."""

import pytest
import torch
from torch.nn import functional as F

from fedbb.models.small_cnn import SmallCNN
from fedbb.rng import torch_stream
from reference.macs import count_macs


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
