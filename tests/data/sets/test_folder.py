import tarfile

import numpy as np
import pytest
from PIL import Image

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from helpers.commands import fedbb as call


def draw(folder, names, size=(6, 5)):
    """Write grey images, each of one value: 10 times its place."""
    for place, name in enumerate(names):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full(size, 10 * place, np.uint8)).save(file)
    return folder


NAMES = [f"{label}/{number}.png" for label in ("cat", "dog") for number in range(5)]


def test_each_folder_is_a_class_and_a_share_is_held_out(tmp_path) -> None:
    data = fedbb.Dataset.from_folder(draw(tmp_path / "pets", NAMES), channels=1)
    assert (data.name, data.classes, data.input_shape) == ("pets", ("cat", "dog"), (1, 6, 5))
    assert (len(data.train), len(data.test)) == (8, 2)
    for part in (data.train, data.test):
        for image, label, file in zip(part.inputs, part.labels, part.columns["file"], strict=True):
            assert image.flat[0] == 10 * NAMES.index(file)
            assert file.startswith(data.classes[label])
    assert data.mean == pytest.approx(((data.train.inputs / 255).mean(),))


@pytest.mark.parametrize(
    ("folders", "sizes"),
    [
        (("train", "test", "val"), (10, 10, 10)),
        (("Train", "TEST", "validation"), (10, 10, 10)),
        (("train", "test"), (10, 10, None)),
        (("train", "val"), (10, 10, None)),
        (("train",), (8, 2, None)),
    ],
)
def test_folders_of_parts_are_used_as_such(tmp_path, folders, sizes) -> None:
    for folder in folders:
        draw(tmp_path / folder, NAMES)
    data = load_dataset("folder", path=tmp_path, options={"channels": 1})
    held = None if data.validation is None else len(data.validation)
    assert (len(data.train), len(data.test), held) == sizes
    assert data.classes == ("cat", "dog")


def test_images_of_several_sizes_are_scaled_to_one(tmp_path) -> None:
    draw(tmp_path, NAMES[:5], size=(4, 4))
    draw(tmp_path, NAMES[5:], size=(9, 3))
    data = fedbb.Dataset.from_folder(
        tmp_path, size=(3, 2), augmentation=fedbb.data.Augmentation(flip=True)
    )
    assert data.input_shape == (3, 3, 2)
    assert data.augmentation.flip


def test_an_archive_with_a_folder_around_all_is_read_as_the_folder_is(tmp_path) -> None:
    draw(tmp_path / "pets" / "train", NAMES)
    draw(tmp_path / "pets" / "test", NAMES)
    with tarfile.open(tmp_path / "pets.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "pets", "pets")
    packed, plain = (load_dataset("folder", path=tmp_path / n) for n in ("pets.tar.gz", "pets"))
    assert np.array_equal(packed.train.inputs, plain.train.inputs)
    assert packed.train.labels.tolist() == plain.train.labels.tolist()


def test_further_files_and_hidden_ones_are_left_alone(tmp_path) -> None:
    draw(tmp_path, [*NAMES, ".thumbnails/0.png", "cat/.1.png"])
    (tmp_path / "readme.txt").write_text("pets")
    assert len(load_dataset("folder", path=tmp_path).train) == 8


def test_a_recipe_runs_on_a_folder(tmp_path) -> None:
    draw(tmp_path / "pets", NAMES)
    recipe = {
        "engine": "inline",
        "data": {
            "name": "folder",
            "path": str(tmp_path / "pets"),
            "options": {"size": 8, "channels": 1},
            "flip": True,
            "partition": {"kind": "even", "clients": 2},
        },
        "method": {"name": "fedbb"},
        "rounds": {"number": 1},
    }
    assert 0 <= fedbb.run(recipe).final["accuracy"] <= 1


def spoil(folder, how):
    """Make one thing wrong in a folder of images."""
    draw(folder, NAMES)
    match how:
        case "unreadable":
            (folder / "dog" / "3.png").write_bytes(b"no image")
        case "mixed sizes":
            draw(folder, ["dog/3.png"], size=(2, 2))
        case "no class folder":
            draw(folder, ["9.png"])
        case "parts and classes":
            draw(folder, ["train/cat/1.png"])
        case "no train":
            (folder / "test").mkdir()
            for label in ("cat", "dog"):
                (folder / label).rename(folder / "test" / label)
        case "empty":
            for name in NAMES:
                (folder / name).unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("unreadable", "dog/3.png cannot be read"),
        ("mixed sizes", "dog/3.png has 2 × 2 pixels, the first one 6 × 5; set the option size"),
        ("no class folder", "9.png is in no class folder"),
        ("parts and classes", "cat/0.png is outside of the folders train and test"),
        ("no train", "has the folders test but no train"),
        ("empty", "holds no images in class folders"),
    ],
)
def test_a_malformed_folder_is_one_message_and_leaves_nothing(
    tmp_path, monkeypatch, how, message
) -> None:
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    spoil(tmp_path / "pets", how)
    result = call("data", "check", "folder", "--path", tmp_path / "pets", monkeypatch=monkeypatch)
    assert result.code == 2
    assert message in " ".join(result.err.split())
    assert str(tmp_path / "pets") in result.err.replace("\n", "")
    assert not (tmp_path / "cache").exists()


def test_an_unreadable_image_can_be_skipped_and_is_noted(tmp_path) -> None:
    spoil(tmp_path, "unreadable")
    data = fedbb.Dataset.from_folder(tmp_path, unreadable="skip")
    assert len(data.train) + len(data.test) == 9
    assert data.notes == ("1 unreadable images skipped: dog/3.png",)


def test_named_classes_have_their_order_and_no_others(tmp_path) -> None:
    draw(tmp_path, NAMES)
    assert fedbb.Dataset.from_folder(tmp_path, classes=["dog", "cat"]).classes == ("dog", "cat")
    with pytest.raises(DataError, match=r"dog/0\.png is in the folder 'dog', which is not a class"):
        fedbb.Dataset.from_folder(tmp_path, classes=["cat", "cow"])
