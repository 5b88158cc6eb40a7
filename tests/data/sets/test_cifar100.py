import hashlib
import io
import json
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from fedbb.data.dataset import Augmentation
from fedbb.data.registry import check_files, get_dataset, holding, load_dataset
from fedbb.data.sets import cifar100
from fedbb.errors import DataError
from helpers.small_run import one_round

CLASSES = [b"apple", b"aquarium_fish", b"baby"]
SIZES = {"train": 4, "test": 2}
FOLDER = "cifar-100-python"


def member(per_class: int, shift: int) -> dict:
    """A batch in the documented format, coarse labels and file names included."""
    number = per_class * len(CLASSES)
    pixels = ((np.arange(number * 3072) + shift) % 251).astype(np.uint8).reshape(number, 3072)
    return {
        b"data": pixels,
        b"fine_labels": [place % len(CLASSES) for place in range(number)],
        b"coarse_labels": [0] * number,
        b"filenames": [b"a.png"] * number,
        b"batch_label": b"batch 1 of 1",
    }


def members() -> dict:
    return {
        "train": member(SIZES["train"], 0),
        "test": member(SIZES["test"], 9),
        "meta": {b"fine_label_names": CLASSES, b"coarse_label_names": [b"things"]},
    }


def write(path, contents: dict):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            data = pickle.dumps(content, protocol=4)
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A function that makes a small archive the official one."""

    def make(contents: dict):
        path = write(tmp_path / "cifar-100-python.tar.gz", contents)
        content = path.read_bytes()
        official = replace(
            cifar100.OFFICIAL,
            url=path.as_uri(),
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        monkeypatch.setattr(cifar100, "OFFICIAL", official)
        monkeypatch.setattr(cifar100, "SIZES", SIZES)
        return path

    return make


@pytest.mark.parametrize("way", ["path", "local", "download"])
def test_the_archive_is_decoded_with_fine_labels_and_names(known, tmp_path, way) -> None:
    root, archive = tmp_path / "cache", known(members())
    if way == "path":
        load_dataset("cifar100", root=root, path=archive)
    else:
        get_dataset("cifar100", root, local=archive if way == "local" else None)
    archive.unlink()
    dataset = load_dataset("cifar100", root=root)
    assert isinstance(dataset.train.images, np.memmap)
    pixels = members()["train"][b"data"].reshape(-1, 3, 32, 32)
    assert np.array_equal(dataset.train.images, pixels)
    assert dataset.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.classes == ("apple", "aquarium_fish", "baby")
    assert (dataset.mean, dataset.std) == ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    assert dataset.augmentation == Augmentation(crop=4, flip=True)
    assert check_files("cifar100", root) == holding("cifar100", root)
    assert len(list((root / "cifar100").iterdir())) == 5


def test_the_official_archive_is_known_by_the_sum_that_others_publish() -> None:
    assert cifar100.OFFICIAL.size == 169_001_437
    assert cifar100.OFFICIAL.sha256.startswith("85cd44d02ba6437773c5bbd22e183051")
    assert {part: 100 * size for part, size in cifar100.SIZES.items()} == {
        "train": 50_000,
        "test": 10_000,
    }


def test_another_archive_is_not_read(known, tmp_path) -> None:
    archive = known(members())
    archive.write_bytes(archive.read_bytes() + b" ")
    with pytest.raises(DataError, match="was not read"):
        get_dataset("cifar100", tmp_path / "cache", local=archive)
    assert not holding("cifar100", tmp_path / "cache").present


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("meta", {b"coarse_label_names": CLASSES}, "does not list class names"),
        ("meta", {b"fine_label_names": [*CLASSES, b"bear"]}, "train has 0 images of class 3"),
        ("meta", {b"fine_label_names": CLASSES[:2]}, "allowed are 0 to 1"),
        ("test", member(3, 9), "test has 3 images of class 0; expected 2"),
    ],
)
def test_an_archive_of_another_content_is_refused(known, tmp_path, name, content, message) -> None:
    archive = known(members() | {name: content})
    with pytest.raises(DataError, match=message):
        get_dataset("cifar100", tmp_path / "cache", local=archive)
    assert not holding("cifar100", tmp_path / "cache").present


def test_an_archive_refused_late_leaves_no_data_set_of_two_minds(known, tmp_path) -> None:
    get_dataset("cifar100", tmp_path, local=known(members()))
    with pytest.raises(DataError, match="test has 3 images"):
        get_dataset("cifar100", tmp_path, local=known(members() | {"test": member(3, 9)}))
    assert not holding("cifar100", tmp_path).present


def test_damage_to_the_cache_is_found_by_the_check(known, tmp_path) -> None:
    get_dataset("cifar100", tmp_path, local=known(members()))
    folder = tmp_path / "cifar100"
    array = np.load(folder / "train_images.npy")
    array[0, 0, 0, 0] ^= 1
    np.save(folder / "train_images.npy", array)
    with pytest.raises(DataError, match=r"train_images\.npy is damaged"):
        check_files("cifar100", tmp_path)
    (folder / "facts.json").write_text(json.dumps({"classes": 3}))
    with pytest.raises(DataError, match="get the data again"):
        load_dataset("cifar100", root=tmp_path)


def test_a_data_set_that_is_not_there_says_how_to_get_it(tmp_path) -> None:
    with pytest.raises(DataError, match="fedbb data get cifar100"):
        load_dataset("cifar100", root=tmp_path)


def test_a_recipe_of_the_archive_runs_for_a_round(known, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    record = one_round(tmp_path, name="cifar100", path=str(known(members())), options={})
    assert 0 <= record["scores"]["test"]["macro"]["balanced_accuracy"] <= 1
