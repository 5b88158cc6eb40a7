"""Exported models agree with the original on real images."""

import numpy as np
import pytest
import torch

from fedbb.data.registry import load_dataset
from fedbb.errors import RunError
from fedbb.inference import export
from fedbb.inference.export import TOLERANCE, export_model
from fedbb.inference.model import load_model
from fedbb.models.registry import build_model


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder)


@pytest.fixture(scope="module")
def images():
    return load_dataset("digits").test.inputs[:20]


def test_onnx_agrees(tmp_path, model, images):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    assert export_model(model, path, "onnx", samples=images) <= TOLERANCE
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    [found] = session.run(["probabilities"], {"inputs": images[:3]})
    np.testing.assert_allclose(found, model.predict(images[:3]), atol=TOLERANCE)


def test_pt2_agrees(tmp_path, model, images):
    path = tmp_path / "model.pt2"
    assert export_model(model, path, "pt2", samples=images) <= TOLERANCE
    program = torch.export.load(path).module()
    for number in (1, 5):
        found = program(torch.from_numpy(images[:number])).detach()
        np.testing.assert_allclose(found, model.predict(images[:number]), atol=TOLERANCE)


def test_multi_label_agrees(tmp_path, mosaics):
    model, images = load_model(mosaics), load_dataset("digit-mosaic").test.inputs[:4]
    assert export_model(model, tmp_path / "m.pt2", "pt2", samples=images) <= TOLERANCE


def test_a_state_dict_loads_in_plain_pytorch(tmp_path, model):
    assert export_model(model, tmp_path / "m.pt", "state-dict") == 0
    network = build_model("small-cnn", 10, (1, 8, 8))
    network.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    for name, tensor in model.network.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor)


def test_an_export_that_differs_is_not_kept(tmp_path, model, monkeypatch):
    wrong = lambda model, path: lambda inputs: np.zeros((len(inputs), 10))  # noqa: E731
    monkeypatch.setattr(export, "READERS", {**export.READERS, "pt2": wrong})
    with pytest.raises(RunError, match=r"differs from the original by .*nothing was written"):
        export_model(model, tmp_path / "m.pt2", "pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path, model, monkeypatch):
    monkeypatch.setattr(export, "ONNX_NEEDS", ("onnx", "no_such_package"))
    with pytest.raises(RunError, match=r'no_such_package.*pip install "fedbb\[onnx\]"'):
        export_model(model, tmp_path / "m.onnx", "onnx")
