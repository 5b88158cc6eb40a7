import numpy as np
import pytest

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.records import Task
from helpers.commands import fedbb as call

SIZES = {"train": 12, "val": 4, "test": 5}


def arrays(shape=(28, 28), classes=0, **changes):
    """Arrays as MedMNIST's files have them; `classes` for a multi-label set."""
    rng = np.random.default_rng(0)
    made = {}
    for part, number in SIZES.items():
        made[f"{part}_images"] = rng.integers(0, 256, (number, *shape), dtype=np.uint8)
        made[f"{part}_labels"] = (
            rng.integers(0, 2, (number, classes), dtype=np.uint8)
            if classes
            else (np.arange(number, dtype=np.uint8) % 2)[:, None]
        )
    return {name: array for name, array in {**made, **changes}.items() if array is not None}


@pytest.fixture
def load(tmp_path):
    def write_and_load(name="pneumoniamnist.npz", options=None, **given):
        np.savez_compressed(tmp_path / name, **arrays(**given))
        return load_dataset("medmnist", path=tmp_path / name, options=options)

    return write_and_load


def test_the_three_parts_are_used_for_what_they_are(load) -> None:
    data = load()
    assert (len(data.train), len(data.test), len(data.validation)) == (12, 5, 4)
    assert data.task is Task.MULTICLASS
    assert data.classes == ("normal", "pneumonia")
    assert data.train.labels.tolist() == [0, 1] * 6
    assert np.array_equal(data.train.inputs[:, 0], arrays()["train_images"])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((28, 28), (1, 28, 28)), ((28, 28, 3), (3, 28, 28)), ((28, 28, 28), (1, 28, 28, 28))],
)
def test_images_in_color_and_volumes_have_channels_first(load, shape, expected) -> None:
    data = load(shape=shape)
    assert data.input_shape == expected
    given = arrays(shape=shape)["val_images"]
    channels = given.transpose(0, 3, 1, 2) if shape[-1] == 3 else given[:, None]
    assert np.array_equal(data.validation.inputs, channels)


def test_several_columns_of_labels_are_multi_label(load) -> None:
    data = load("chestmnist_64.npz", classes=14)
    assert data.task is Task.MULTILABEL
    assert data.classes[0] == "atelectasis"
    assert len(data.classes) == 14
    assert load("other.npz", classes=3).classes == ("0", "1", "2")


def test_images_can_be_scaled(load) -> None:
    assert load(options={"size": 14}).input_shape == (1, 14, 14)


def test_the_best_round_is_chosen_on_the_validation_part(tmp_path) -> None:
    np.savez(tmp_path / "breastmnist.npz", **arrays())
    recipe = {
        "engine": "inline",
        "data": {
            "name": "medmnist",
            "path": str(tmp_path / "breastmnist.npz"),
            "partition": {"kind": "even", "clients": 2},
        },
        "model": {"name": "linear"},
        "method": {"name": "fedavg"},
        "rounds": {"number": 1},
    }
    result = fedbb.run(recipe, tmp_path / "run")
    assert set(result.history[0].scores) == {"test", "validation"}
    with pytest.raises(fedbb.errors.RecipeError, match="has a validation part of its own"):
        fedbb.run({**recipe, "data": {**recipe["data"], "validation": 0.2}})
    data = load_dataset("medmnist", path=tmp_path / "breastmnist.npz")
    with pytest.raises(fedbb.errors.RecipeError, match="has a validation part of its own"):
        fedbb.simulate(data, fedbb.partition.iid(data, 2), model="linear", validation=0.2)
    again = fedbb.simulate(data, fedbb.partition.iid(data, 2), model="linear", rounds=1)
    assert again.history[0].scores["validation"] == result.history[0].scores["validation"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_images": None}, "no array 'val_images'"),
        ({"train_labels": np.zeros(12, np.uint8)}, "train_labels is uint8 of shape (12,)"),
        ({"train_images": np.zeros((12, 28), np.uint8)}, "train_images has shape (12, 28)"),
        ({"test_images": np.zeros((5, 9, 9), np.uint8)}, "but tests on"),
        ({"val_images": np.zeros((4, 9, 9), np.uint8)}, "but validates on"),
        ({"val_labels": np.zeros((4, 2), np.uint8)}, "have [1, 2] columns"),
        ({"test_labels": np.zeros((3, 1), np.uint8)}, "5 inputs but 3 labels"),
        ({"train_labels": np.array([[None]] * 12)}, "holds Python objects"),
        ({"train_images": np.full((12, 8, 8), np.nan)}, "input 0 holds NaN"),
    ],
)
def test_a_malformed_file_is_one_message(tmp_path, monkeypatch, changes, message) -> None:
    path = tmp_path / "pathmnist.npz"
    np.savez(path, **arrays(**changes))
    result = call("data", "check", "medmnist", "--path", path, monkeypatch=monkeypatch)
    assert result.code == 2
    assert message in " ".join(result.err.split())
