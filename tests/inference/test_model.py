"""Trained models outside their run: what a model file holds, and what it refuses."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from fedbb.data.registry import load_dataset
from fedbb.errors import DataError, RunError
from fedbb.inference.model import InferenceModel, load_model, read_info
from fedbb.models.registry import build_model
from fedbb.runs.checkpoint import load_checkpoint, save_checkpoint
from fedbb.runs.model_info import ModelInfo
from fedbb.state import digest


def test_the_model_has_the_scores_of_its_run(folder):
    model, digits = load_model(folder), load_dataset("digits")
    predicted = model.predict(digits.test.inputs).argmax(axis=1)
    summary = json.loads((folder / "summary.json").read_text())
    accuracy = summary["final"]["scores"]["test"]["macro"]["accuracy"]
    assert (predicted == digits.test.labels).mean() == pytest.approx(accuracy)


def test_raw_pixels_become_probabilities(folder):
    model, digits = load_model(folder), load_dataset("digits")
    inputs = torch.from_numpy(digits.test.inputs[:5])
    with torch.inference_mode():
        probabilities = model(inputs)
    assert not model.training
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(5))
    np.testing.assert_allclose(probabilities, model.predict(digits.test.inputs[:5]), atol=1e-6)
    # Floats are taken as pixels in [0, 1].
    np.testing.assert_allclose(model.predict(inputs.float() / 255), probabilities, atol=1e-6)


def test_plain_pytorch_reads_the_file(folder):
    network = build_model("small-cnn", 10, (1, 8, 8))
    network.load_state_dict(load_file(folder / "final.safetensors"))
    state = load_checkpoint(folder / "final.safetensors").state
    assert set(network.state_dict()) == {*state.params, *state.buffers}
    summary = json.loads((folder / "summary.json").read_text())
    assert digest(state) == summary["sha256"]


def test_the_file_says_what_the_model_needs(folder):
    with safe_open(folder / "final.safetensors", "pt") as file:
        held = json.loads(file.metadata()["model"])
    assert held == json.loads((folder / "model.json").read_text())
    info, digits = read_info(folder / "final.safetensors"), load_dataset("digits")
    assert info.classes == digits.classes
    assert info.input_shape == (1, 8, 8)
    assert (info.mean, info.std) == (digits.mean, digits.std)
    assert info.recipe["method"]["name"] == "fedbb"


def test_the_best_round_can_be_taken(folder):
    best = load_model(folder, best=True)
    state = load_checkpoint(folder / "best.safetensors").state
    for name, tensor in best.network.state_dict().items():
        assert torch.equal(tensor, {**state.params, **state.buffers}[name])


def test_inputs_of_another_shape_are_refused(folder):
    model = load_model(folder)
    with pytest.raises(DataError, match=r"1 × 9 × 9.*takes 1 × 8 × 8"):
        model.predict(np.zeros((2, 1, 9, 9), np.uint8))
    with pytest.raises(DataError, match="no inputs"):
        model.predict(np.zeros((0, 1, 8, 8), np.uint8))


def change_info(folder, target, **changes):
    """Write the run's model with another description."""
    checkpoint = load_checkpoint(folder / "final.safetensors")
    info = json.loads((folder / "model.json").read_text())
    save_checkpoint(target, checkpoint, json.dumps({**info, **changes}))
    return target


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": ["a", "b"]}, r"does not fit its network: '.*' is .* in the file"),
        ({"classes": []}, "classes"),
        ({"classes": "abc"}, "classes"),
        ({"std": [0.0]}, "std is above 0"),
        ({"task": "ranking"}, "ranking"),
        ({"extra": 1}, "extra is unknown"),
        ({"input_shape": ["x"]}, "input_shape"),
        ({"input_dtype": "object"}, "uint8, float32"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(folder, tmp_path, changes, words):
    path = change_info(folder, tmp_path / "strange.safetensors", **changes)
    with pytest.raises(RunError, match=words):
        load_model(path)


def test_extra_keys_are_refused(folder, tmp_path):
    checkpoint = load_checkpoint(folder / "final.safetensors")
    checkpoint.state.params["backdoor"] = torch.zeros(3)
    described = (folder / "model.json").read_text()
    save_checkpoint(tmp_path / "more.safetensors", checkpoint, described)
    with pytest.raises(RunError, match=r"'backdoor' is .*in the file.*network has nothing"):
        load_model(tmp_path / "more.safetensors")


def test_pickles_and_foreign_files_are_refused(tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "pickle.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    for name in ("pickle", "foreign"):
        with pytest.raises(RunError, match="cannot be used"):
            load_model(tmp_path / f"{name}.safetensors")
    with pytest.raises(RunError, match="does not exist; give a run folder or a model file"):
        load_model(tmp_path / "missing.safetensors")


def test_a_changed_byte_is_noticed(folder, tmp_path):
    content = bytearray((folder / "final.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "changed.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="checksum"):
        load_model(tmp_path / "changed.safetensors")


def test_an_unfinished_run_has_no_model(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "half")
    (tmp_path / "half" / "final.safetensors").unlink()
    with pytest.raises(RunError, match="unfinished"):
        load_model(tmp_path / "half")
    with pytest.raises(RunError, match="is not a run folder"):
        load_model(tmp_path)


def test_a_checkpoint_does_not_describe_its_network(folder):
    with pytest.raises(RunError, match="does not describe its network"):
        load_model(folder / "checkpoints" / "round-000002.safetensors")


def test_an_own_network_can_be_given(folder):
    given = load_model(folder, model=lambda: build_model("small-cnn", 10, (1, 8, 8)))
    inputs = load_dataset("digits").test.inputs[:3]
    np.testing.assert_array_equal(given.predict(inputs), load_model(folder).predict(inputs))


def test_a_network_that_is_given_stays_as_it_is(folder):
    own = build_model("small-cnn", 10, (1, 8, 8))
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    loaded = load_model(folder, model=own)
    assert loaded.network is not own
    assert all(torch.equal(before[name], tensor) for name, tensor in own.state_dict().items())


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (np.full((2, 1, 8, 8), 255.0), "floats up to 255, and the model takes pixels: uint8"),
        (np.full((2, 1, 8, 8), 256), "whole numbers must be 0 to 255"),
        (np.full((2, 1, 8, 8), np.nan), "input 0 holds a value that is not finite"),
        (np.full((2, 1, 8, 8), "a"), "the inputs are <U1, and the model takes numbers"),
        (np.zeros((0, 1, 8, 8)), "there are no inputs"),
    ],
)
def test_inputs_that_cannot_be_meant_are_refused(folder, inputs, words):
    with pytest.raises(DataError, match=words):
        load_model(folder).predict(inputs)


def test_pixels_of_any_type_give_the_same(folder):
    model, pixels = load_model(folder), load_dataset("digits").test.inputs[:5]
    expected = model.predict(pixels)
    for same in (pixels.astype(np.int64), pixels.tolist(), pixels / 255):
        np.testing.assert_allclose(model.predict(same), expected, atol=1e-6)


def test_token_ids_are_whole_numbers_that_the_embedding_knows():
    network = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    info = ModelInfo("own:net", "multiclass", ("a", "b"), (2,), "int64")
    model = InferenceModel(network, info)
    assert model.predict([[0, 4], [1, 1]]).shape == (2, 2)
    with pytest.raises(DataError, match=r"the inputs are float64.*whole numbers \(token ids\)"):
        model.predict([[0.0, 4.0]])
    with pytest.raises(DataError, match="does not know all token ids from 0 to 5"):
        model.predict([[0, 5]])
