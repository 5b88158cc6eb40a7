"""What would end a round in a traceback is refused by name before the first one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedbb.data.dataset import Examples
from fedbb.errors import FedbbError, RecipeError
from fedbb.methods import METHODS, Method, build_method, fedalign, fedavg
from fedbb.models.base import NetworkModule, Outputs
from fedbb.models.registry import MODELS, build_model
from fedbb.rng import torch_stream
from fedbb.state import digest, snapshot
from fedbb.training.checks import check_device, check_network
from helpers.toy import toy_dataset, toy_network


class Flat(NetworkModule):
    """A network without stages."""

    def __init__(self, classes=3):
        super().__init__()
        self.fc = nn.Linear(16, classes)

    def forward(self, images):
        embedding = images.flatten(1)
        return Outputs(self.fc(embedding), embedding, ())


class FlatWithTail(Flat):
    def tail(self, hidden, width):
        return hidden


def dataset_of(channels, height, width):
    images = np.zeros((6, channels, height, width), np.uint8)
    return replace(toy_dataset(), train=Examples(images, np.arange(6) % 3))


@pytest.mark.parametrize("network", [Flat, FlatWithTail])
def test_fedalign_on_a_network_without_stages_is_refused_by_both_names(network):
    check_network(network(), toy_dataset())
    check_network(network(), toy_dataset(), fedavg())
    with pytest.raises(RecipeError, match=r"FedAlign .*Flat"):
        check_network(network(), toy_dataset(), fedalign())
    harmonized = build_method("fedalign+fedbb", {})
    with pytest.raises(RecipeError, match=r"FedAlign\+FedBB .*Flat"):
        check_network(network(), toy_dataset(), harmonized)


@pytest.mark.parametrize("method", METHODS)
def test_the_toy_network_suits_every_method_and_is_left_as_it_was(method):
    network, method = toy_network(projection=True).train(), build_method(method, {})
    before, drawn = digest(snapshot(network)), torch.get_rng_state()
    check_network(network, toy_dataset(), method)
    assert digest(snapshot(network)) == before
    assert torch.equal(torch.get_rng_state(), drawn)
    assert network.training


@pytest.mark.parametrize("name", MODELS)
def test_built_in_networks_take_small_images(name):
    side = 16 if name == "lenet" else 8
    with torch_stream(0, "test"):
        network = build_model(name, 3, (1, side, side))
    check_network(network, dataset_of(1, side, side), fedavg())
    if name in ("mlp", "linear"):
        with pytest.raises(RecipeError, match=r"FedAlign needs a network .* MLP is none"):
            check_network(network, dataset_of(1, side, side), fedalign())
    else:
        check_network(network, dataset_of(1, side, side), fedalign())


def test_an_image_too_small_for_the_network_is_refused_with_its_size():
    with pytest.raises(RecipeError, match=r"SmallCNN cannot take the 1×1×1 images .* of toy"):
        check_network(build_model("small-cnn", 3, (1, 32, 32)), dataset_of(1, 1, 1), fedavg())


def test_images_of_other_channels_and_other_classes_are_refused():
    with pytest.raises(RecipeError, match="SmallCNN cannot take the 3×8×8 images"):
        check_network(build_model("small-cnn", 3, (1, 32, 32)), dataset_of(3, 8, 8), fedavg())
    with pytest.raises(RecipeError, match=r"logits of shape \(1, 7\) .* not \(1, 3\)"):
        check_network(Flat(7), toy_dataset(), fedavg())


def test_the_cpu_is_a_device_everywhere():
    check_device("cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "cpu:", "meta", "hpu", "privateuseone"])
def test_a_device_that_cannot_compute_is_refused_with_those_that_can(name):
    with pytest.raises(RecipeError, match=f"local.device '{name}' .*allowed: cpu, cuda"):
        check_device(name)


def test_cuda_without_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cuda", "cuda:1"):
        with pytest.raises(FedbbError, match=f"local.device '{name}' .*no CUDA device"):
            check_device(name)


def test_a_card_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda")
    check_device("cuda:1")
    with pytest.raises(RecipeError, match="devices here are cuda:0 to cuda:1"):
        check_device("cuda:2")


def test_an_embedding_that_is_too_small_is_refused_before_any_round():
    words = np.array([[0, 3], [7, 1], [2, 2]])
    data = replace(toy_dataset(), train=Examples(words, np.arange(3)))
    network = nn.Sequential(nn.Embedding(8, 2), nn.Flatten(), nn.Linear(4, 3))
    check_network(network, data, fedavg())
    network[0] = nn.Embedding(7, 2)
    with pytest.raises(RecipeError, match=r"cannot take the 2 token ids from 0 to 7 of .*range"):
        check_network(network, data, fedavg())
    with pytest.raises(RecipeError, match=r"whole numbers are token ids.*give features as floats"):
        check_network(build_model("mlp", 3, (2,)), data, fedavg())


def test_a_loss_of_the_users_own_is_tried():
    with pytest.raises(RecipeError, match="the loss MSELoss cannot take"):
        check_network(Flat(), toy_dataset(), Method("mine", loss=nn.MSELoss()))
