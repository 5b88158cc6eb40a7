"""A recipe's name becomes a network, the same one for the same stream."""

import pytest
import torch
from torch import nn

from fedbb.errors import RecipeError
from fedbb.models.base import Outputs
from fedbb.models.registry import MODELS, build_model
from fedbb.rng import torch_stream


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("classes", "channels"), [(1, 1), (7, 3)])
def test_every_name_builds_a_network_of_these_classes_and_channels(
    name: str, classes: int, channels: int
) -> None:
    network = build_model(name, classes, (channels, 32, 32))
    outputs = network.eval()(torch.rand(2, channels, 32, 32))
    assert isinstance(network, nn.Module)
    assert isinstance(outputs, Outputs)
    assert outputs.logits.shape == (2, classes)


@pytest.mark.parametrize("name", MODELS)
def test_the_stream_alone_decides_the_initial_weights(name: str) -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        with torch_stream(seed, "model"):
            return build_model(name, 3, (1, 32, 32)).state_dict()

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])


def test_an_unknown_name_is_refused_with_the_nearest_and_all_allowed() -> None:
    with pytest.raises(RecipeError) as caught:
        build_model("resnet5", 10, (3, 32, 32))
    message = str(caught.value)
    assert "'resnet5'" in message
    assert "did you mean resnet56?" in message
    assert all(name in message for name in MODELS)


def test_a_name_like_none_of_them_is_refused_without_a_guess() -> None:
    with pytest.raises(RecipeError, match=r"'qqq' is unknown; known: resnet56"):
        build_model("qqq", 10, (3, 32, 32))
