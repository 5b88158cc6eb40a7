import hashlib
import io
import json
import pickle
import tarfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedbb.data.download import RemoteFile
from fedbb.data.registry import cache_status, check_files, get_dataset, load_dataset
from fedbb.data.sets import cifar
from fedbb.data.sets.cifar import KnownArchive, decode, fingerprint, read_decoded
from fedbb.data.sets.cifar_archive import Arrays
from fedbb.data.transforms import Augmentation
from fedbb.errors import DataError
from helpers.small_run import one_round

ARRAYS = Arrays(
    (np.arange(20 * 3072) % 251).astype(np.uint8).reshape(20, 3, 32, 32),
    np.arange(20) % 10,
    (np.arange(5 * 3072) % 241).astype(np.uint8).reshape(5, 3, 32, 32),
    np.arange(5),
)


def read_small(wanted: bytes, path) -> Arrays:
    """Stand in for a reader; its own tests cover real archives."""
    assert path.read_bytes() == wanted
    return ARRAYS


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A small archive, known to the loader by its SHA-256, that decodes to the arrays above."""
    content = b"an archive"
    path = tmp_path / "cifar-10.tar.gz"
    path.write_bytes(content)
    known = KnownArchive(
        "a small one", hashlib.sha256(content).hexdigest(), partial(read_small, content)
    )
    monkeypatch.setattr(cifar, "ARCHIVES10", (known,))
    decoded = {name: fingerprint(array) for name, array in ARRAYS._asdict().items()}
    monkeypatch.setattr(cifar, "DECODED10", decoded)
    return path


def test_an_archive_is_decoded_once_and_then_mapped_from_disk(archive, tmp_path) -> None:
    root = tmp_path / "cache"
    first = load_dataset("cifar10", root=root, path=archive)
    archive.unlink()
    second = load_dataset("cifar10", root=root)
    for dataset in (first, second):
        assert isinstance(dataset.train.inputs, np.memmap)
        assert np.array_equal(dataset.train.inputs, ARRAYS.train_images)
        assert np.array_equal(dataset.test.labels, ARRAYS.test_labels)
        assert dataset.augmentation == Augmentation(crop=4, flip=True)
        assert len(dataset.classes) == 10
    assert sorted(path.name for path in (root / "cifar10").iterdir()) == [
        "test_images.npy",
        "test_labels.npy",
        "train_images.npy",
        "train_labels.npy",
    ]


def test_a_local_archive_is_taken_over_checked_and_measured(archive, tmp_path) -> None:
    root = tmp_path / "cache"
    assert not cache_status("cifar10", root).present
    found = get_dataset("cifar10", root, local=archive)
    assert found.present
    assert found.size > ARRAYS.train_images.nbytes
    assert check_files("cifar10", root) == found
    assert archive.exists()


def test_a_downloaded_archive_is_decoded_and_not_kept(archive, tmp_path, monkeypatch) -> None:
    content = archive.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    remote = RemoteFile("cifar-10.tar.gz", archive.as_uri(), len(content), digest)
    monkeypatch.setattr(cifar, "OFFICIAL10", remote)
    told = []
    found = get_dataset("cifar10", tmp_path, progress=lambda *figures: told.append(figures))
    assert told == [(len(content), len(content))]
    assert {path.name for path in (tmp_path / "cifar10").iterdir()} == {
        path.name for path in found.files
    }
    archive.unlink()
    assert get_dataset("cifar10", tmp_path) == found


def test_an_archive_with_a_flipped_byte_is_not_even_read(archive, tmp_path) -> None:
    content = archive.read_bytes()
    for place in range(len(content)):
        archive.write_bytes(content[:place] + bytes([content[place] ^ 128]) + content[place + 1 :])
        with pytest.raises(DataError, match=r"cifar-10\.tar\.gz has SHA-256 .* was not read"):
            load_dataset("cifar10", root=tmp_path / "cache", path=archive)
    assert not (tmp_path / "cache").exists()


def test_a_flipped_byte_of_the_cache_is_found_by_the_check(archive, tmp_path) -> None:
    get_dataset("cifar10", tmp_path, local=archive)
    path = tmp_path / "cifar10" / "train_images.npy"
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"train_images\.npy is damaged"):
        check_files("cifar10", tmp_path)


@pytest.mark.parametrize("length", [0, 40, 5000])
def test_a_cache_that_was_cut_is_refused_when_loaded(archive, tmp_path, length) -> None:
    get_dataset("cifar10", tmp_path, local=archive)
    path = tmp_path / "cifar10" / "test_images.npy"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"test_images\.npy is damaged.*get the data again"):
        load_dataset("cifar10", root=tmp_path)


def test_arrays_that_do_not_fit_are_refused_when_loaded(archive, tmp_path) -> None:
    decode(archive, tmp_path, cifar.ARCHIVES10)
    np.save(tmp_path / "train_labels.npy", np.arange(20))
    with pytest.raises(DataError, match="train label 10 is 10; allowed are 0 to 9"):
        read_decoded(tmp_path, len(cifar.CLASSES))


def test_a_data_set_that_is_not_there_says_how_to_get_it(tmp_path) -> None:
    with pytest.raises(DataError, match="fedbb data get cifar10"):
        load_dataset("cifar10", root=tmp_path)
    with pytest.raises(DataError, match="nowhere"):
        load_dataset("cifar10", root=tmp_path, path=tmp_path / "nowhere")


def test_the_fingerprint_is_of_values_type_and_shape() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert fingerprint(array) == fingerprint(np.asfortranarray(array))
    assert fingerprint(array) != fingerprint(array.reshape(3, 2))
    assert fingerprint(array) != fingerprint(array.astype(np.int8))


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
            cifar.OFFICIAL100,
            url=path.as_uri(),
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        monkeypatch.setattr(cifar, "OFFICIAL100", official)
        monkeypatch.setattr(cifar, "CLASS_SIZES", SIZES)
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
    assert isinstance(dataset.train.inputs, np.memmap)
    pixels = members()["train"][b"data"].reshape(-1, 3, 32, 32)
    assert np.array_equal(dataset.train.inputs, pixels)
    assert dataset.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.classes == ("apple", "aquarium_fish", "baby")
    assert (dataset.mean, dataset.std) == ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    assert dataset.augmentation == Augmentation(crop=4, flip=True)
    assert check_files("cifar100", root) == cache_status("cifar100", root)
    assert len(list((root / "cifar100").iterdir())) == 5


def test_the_official_archive_is_known_by_the_sum_that_others_publish() -> None:
    assert cifar.OFFICIAL100.size == 169_001_437
    assert cifar.OFFICIAL100.sha256.startswith("85cd44d02ba6437773c5bbd22e183051")
    assert {part: 100 * size for part, size in cifar.CLASS_SIZES.items()} == {
        "train": 50_000,
        "test": 10_000,
    }


def test_another_archive_is_not_read(known, tmp_path) -> None:
    archive = known(members())
    archive.write_bytes(archive.read_bytes() + b" ")
    with pytest.raises(DataError, match="was not read"):
        get_dataset("cifar100", tmp_path / "cache", local=archive)
    assert not cache_status("cifar100", tmp_path / "cache").present


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
    assert not cache_status("cifar100", tmp_path / "cache").present


def test_an_archive_refused_late_leaves_no_data_set_of_two_minds(known, tmp_path) -> None:
    get_dataset("cifar100", tmp_path, local=known(members()))
    with pytest.raises(DataError, match="test has 3 images"):
        get_dataset("cifar100", tmp_path, local=known(members() | {"test": member(3, 9)}))
    assert not cache_status("cifar100", tmp_path).present


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


def test_cifar100_that_is_not_there_says_how_to_get_it(tmp_path) -> None:
    with pytest.raises(DataError, match="fedbb data get cifar100"):
        load_dataset("cifar100", root=tmp_path)


def test_a_recipe_of_the_archive_runs_for_a_round(known, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    record = one_round(tmp_path, name="cifar100", path=str(known(members())), options={})
    assert 0 <= record["scores"]["test"]["macro"]["balanced_accuracy"] <= 1
