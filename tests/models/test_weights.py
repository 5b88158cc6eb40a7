"""Weights from a file: read whole or refused in words, and never any code with them."""

import pickle
import re

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedbb.errors import DataError
from fedbb.models.efficientnet import EfficientNetB0
from fedbb.models.weights import load_weights, read_weights, torchvision_key
from fedbb.rng import torch_stream
from fedbb.state import BUFFERS, PARAMS


class Net(nn.Module):
    def __init__(self, classes=3, width=4):
        super().__init__()
        self.body = nn.Linear(6, width)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, inputs):
        return self.head(self.norm(self.body(inputs)))


def made(seed=1, **options):
    with torch_stream(seed, "test"):
        return Net(**options)


def write(tensors, path):
    save = save_file if path.suffix == ".safetensors" else torch.save
    save(tensors, str(path))
    return str(path)


def equal(network, tensors):
    own = network.state_dict()
    return all(torch.equal(own[name], tensor) for name, tensor in tensors.items())


FILES = pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.pth"])


@FILES
def test_every_kind_of_file_gives_its_weights(name, tmp_path):
    given, network = made(1).state_dict(), made(2)
    assert not equal(network, given)
    load_weights(network, write(given, tmp_path / name))
    assert equal(network, given)


@pytest.mark.parametrize("wrap", ["module", "state_dict", "run folder"])
def test_what_tools_put_around_the_names_is_taken_off(wrap, tmp_path):
    given, network = made(1).state_dict(), made(2)
    parameters = dict(made(1).named_parameters())
    wrapped = {
        "module": {f"module.{name}": tensor for name, tensor in given.items()},
        "state_dict": {"epoch": 3, "state_dict": given},
        "run folder": {
            f"{PARAMS if name in parameters else BUFFERS}{name}": tensor
            for name, tensor in given.items()
        },
    }[wrap]
    load_weights(network, write(wrapped, tmp_path / "w.pt"))
    assert equal(network, given)


def test_counters_of_batch_norm_may_be_missing_and_shared_weights_stand_once(tmp_path):
    given = made(1).state_dict()
    del given["norm.num_batches_tracked"]
    load_weights(made(2), write(given, tmp_path / "w.pt"))
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    network[1].weight = network[0].weight
    tied = network.state_dict()
    del tied["1.weight"]
    load_weights(network, write(tied, tmp_path / "tied.safetensors"))


@FILES
def test_names_that_are_missing_or_unknown_are_named(name, tmp_path):
    given = made().state_dict()
    given["neck.weight"] = given.pop("body.weight")
    path = write(given, tmp_path / name)
    before = made(2)
    with pytest.raises(DataError) as caught:
        load_weights(before, path)
    assert str(caught.value) == (
        f"model.weights {path} does not fit Net: 1 name is missing, such as body.weight; "
        "1 name is unknown to it, such as neck.weight"
    )
    assert equal(before, made(2).state_dict())


@FILES
def test_wrong_shapes_are_named_and_nothing_is_loaded(name, tmp_path):
    before = made(2)
    with pytest.raises(DataError, match=r"body\.bias is 5, not 4; body\.weight is 5×6, not 4×6"):
        load_weights(before, write(made(width=5).state_dict(), tmp_path / name))
    assert equal(before, made(2).state_dict())


def test_a_classifier_of_other_classes_keeps_its_own_start_with_a_warning(tmp_path):
    given, network = made(1, classes=7).state_dict(), made(2)
    with pytest.warns(RuntimeWarning, match=r"classifier of another shape \(head.bias, head.weigh"):
        load_weights(network, write(given, tmp_path / "w.safetensors"))
    assert torch.equal(network.body.weight, given["body.weight"])
    assert torch.equal(network.head.weight, made(2).head.weight)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("kind", ["torch", "pickle"])
def test_a_pickle_with_code_is_refused_and_the_code_does_not_run(kind, tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "w.pt"
    if kind == "torch":
        torch.save({"body.weight": Evil(trace)}, path)
    else:
        path.write_bytes(pickle.dumps({"body.weight": Evil(trace)}))
    with pytest.raises(DataError, match="holds pickled objects, which could run code, or is dam"):
        load_weights(made(), str(path))
    assert not trace.exists()


def test_a_whole_network_in_place_of_its_state_dict_is_refused(tmp_path):
    torch.save(made(), tmp_path / "w.pt")
    with pytest.raises(DataError, match=re.escape("torch.save(network.state_dict(), path)")):
        load_weights(made(), str(tmp_path / "w.pt"))


@pytest.mark.parametrize("content", [{"a": 1}, [torch.ones(2)], torch.ones(2)])
def test_a_file_without_a_state_dict_is_refused(content, tmp_path):
    with pytest.raises(DataError, match="holds no state dict: tensors by name"):
        read_weights(write(content, tmp_path / "w.pt"))


@FILES
def test_a_missing_or_damaged_file_is_refused(name, tmp_path):
    path = tmp_path / name
    with pytest.raises(DataError, match="does not exist"):
        read_weights(str(path))
    path.write_bytes(b"no weights at all")
    with pytest.raises(DataError, match=re.escape(f"model.weights {path}")):
        read_weights(str(path))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value, tmp_path):
    given = made().state_dict()
    given["body.bias"][0] = value
    with pytest.raises(DataError, match="not finite"):
        read_weights(write(given, tmp_path / "w.safetensors"))


def published(classes=1000):
    """Return an EfficientNet-B0 as torchvision publishes it: its names, three channels."""
    with torch_stream(5, "test"):
        own = EfficientNetB0(classes, 3).state_dict()
    return {torchvision_key(name): tensor for name, tensor in own.items()}


# Names and shapes of torchvision's efficientnet_b0, as published.
TORCHVISION = {
    "features.0.0.weight": (32, 3, 3, 3),
    "features.0.1.running_mean": (32,),
    "features.1.0.block.0.0.weight": (32, 1, 3, 3),
    "features.1.0.block.1.fc1.weight": (8, 32, 1, 1),
    "features.1.0.block.2.0.weight": (16, 32, 1, 1),
    "features.2.0.block.0.0.weight": (96, 16, 1, 1),
    "features.2.0.block.1.0.weight": (96, 1, 3, 3),
    "features.2.0.block.2.fc2.bias": (96,),
    "features.2.0.block.3.1.num_batches_tracked": (),
    "features.7.0.block.3.0.weight": (320, 1152, 1, 1),
    "features.8.0.weight": (1280, 320, 1, 1),
    "classifier.1.weight": (1000, 1280),
}


def test_names_of_efficientnet_are_torchvisions():
    given = published()
    assert len(given) == 360
    assert {name: tuple(given[name].shape) for name in TORCHVISION} == TORCHVISION


@pytest.mark.parametrize("projection", [False, True])
def test_efficientnet_takes_torchvisions_file(projection, tmp_path):
    given = published(4)
    network = EfficientNetB0(4, 3, projection)
    if projection:  # whose classifier takes the projected embedding
        with pytest.warns(RuntimeWarning, match="classifier of another shape"):
            load_weights(network, write(given, tmp_path / "w.pt"))
    else:
        load_weights(network, write(given, tmp_path / "w.pt"))
    own = network.state_dict()
    names = [name for name in own if not name.startswith(("projection.", "fc."))]
    assert all(torch.equal(own[name], given[torchvision_key(name)]) for name in names)


def test_grey_images_see_the_sum_over_colors(tmp_path):
    path = write(published(4), tmp_path / "w.safetensors")
    color, grey = EfficientNetB0(4, 3).eval(), EfficientNetB0(4, 1).eval()
    for network in (color, grey):
        load_weights(network, path)
    images = torch.rand(2, 1, 32, 32)
    expected = color(images.expand(2, 3, 32, 32)).logits
    assert torch.allclose(grey(images).logits, expected, atol=1e-4)
