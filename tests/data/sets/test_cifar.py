"""CIFAR: archives that are read or refused, and the decoded arrays in the cache folder."""

import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from fedbb.data.download import RemoteFile
from fedbb.data.registry import cache_status, check_files, get_dataset, load_dataset
from fedbb.data.sets import cifar
from fedbb.data.sets.cifar import (
    CIFAR10,
    Arrays,
    KnownArchive,
    Layout,
    decode,
    fingerprint,
    read_decoded,
    read_pickled,
    read_png_tarball,
)
from fedbb.data.transforms import Augmentation
from fedbb.errors import DataError
from helpers.small_run import one_round

CIFAR100 = Layout(("cifar-100-python/train",), ("cifar-100-python/test",), b"fine_labels")


def images(number: int, start: int = 0) -> np.ndarray:
    return ((np.arange(number * 3072) + start) % 253).astype(np.uint8).reshape(number, 3, 32, 32)


def tarball(path, members: dict[str, bytes]):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def batch(pixels: np.ndarray, labels: list[int], key: bytes = b"labels") -> bytes:
    return pickle.dumps({b"data": pixels.reshape(len(pixels), -1), key: labels}, protocol=4)


def batch_of_python_2(pixels: np.ndarray, labels: list[int]) -> bytes:
    """The very operations of which the official files consist, with text as bytes."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
        b"(K\x01(" + number(len(pixels)) + number(3072) + b"t"
        b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR"
        b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + text(pixels.tobytes()) + b"tb"
    )
    listed = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + b"u."


def official(path, make=batch):
    parts = {name: make(images(2, place), [place, 9]) for place, name in enumerate(CIFAR10.train)}
    return tarball(path, parts | {CIFAR10.test[0]: make(images(3, 77), [4, 5, 6])})


@pytest.mark.parametrize("make", [batch, batch_of_python_2])
def test_the_official_format_is_read_image_by_image(tmp_path, make) -> None:
    arrays = read_pickled(official(tmp_path / "cifar.tar.gz", make), CIFAR10)
    assert arrays.train_images.shape == (10, 3, 32, 32)
    assert arrays.train_labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert np.array_equal(arrays.train_images[4:6], images(2, 2))
    assert np.array_equal(arrays.test_images, images(3, 77))
    assert arrays.test_labels.tolist() == [4, 5, 6]
    assert arrays.train_labels.dtype == arrays.test_labels.dtype == np.int64


def test_the_other_cifar_differs_in_names_only(tmp_path) -> None:
    members = {
        "cifar-100-python/train": batch(images(4), [99, 0, 1, 2], b"fine_labels"),
        "cifar-100-python/test": batch(images(1), [50], b"fine_labels"),
    }
    arrays = read_pickled(tarball(tmp_path / "cifar.tar.gz", members), CIFAR100)
    assert arrays.train_labels.tolist() == [99, 0, 1, 2]
    assert np.array_equal(arrays.test_images, images(1))


def png(pixels: np.ndarray) -> bytes:
    """One image a row, its pixels in the order height, width, channel."""
    rows = pixels.transpose(0, 2, 3, 1).reshape(len(pixels), 1024, 3)
    file = io.BytesIO()
    Image.fromarray(rows).save(file, "PNG")
    return file.getvalue()


def picture_members() -> dict[str, bytes]:
    members = {f"package/data_batch_{n}.png": png(images(2, n)) for n in range(1, 6)}
    members["package/test_batch.png"] = png(images(3, 50))
    members["package/train_lables.json"] = json.dumps([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).encode()
    members["package/test_lables.json"] = b"[7, 8, 9]"
    return members


def test_the_tarball_of_pictures_holds_the_same_images(tmp_path) -> None:
    arrays = read_png_tarball(tarball(tmp_path / "pictures.tgz", picture_members()))
    assert np.array_equal(arrays.train_images[2:4], images(2, 2))
    assert np.array_equal(arrays.test_images, images(3, 50))
    assert arrays.train_labels.tolist() == list(range(10))
    assert arrays.test_labels.tolist() == [7, 8, 9]


class Canary:
    """Would leave a file behind if it were ever unpickled by the book."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("hide", [lambda bad: bad, lambda bad: {b"data": bad, b"labels": [1]}])
def test_a_pickle_that_would_run_a_program_is_refused_and_runs_nothing(tmp_path, hide) -> None:
    canary = tmp_path / "canary"
    content = pickle.dumps(hide(Canary(canary)))
    archive = tarball(tmp_path / "bad.tar.gz", dict.fromkeys(CIFAR10.train, content))
    with pytest.raises(DataError, match=r"asks for posix\.system, which is not allowed"):
        read_pickled(archive, CIFAR10)
    assert not canary.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps([1, 2, 3]),
        pickle.dumps({b"labels": [1]}),
        pickle.dumps({b"data": [1, 2], b"labels": [1]}),
        pickle.dumps({b"data": np.zeros((1, 3072), np.float64), b"labels": [1]}),
        pickle.dumps({b"data": np.array([[None] * 3072]), b"labels": [1]}),
        batch(images(2), [1]),
        pickle.dumps({b"data": np.zeros((1, 3071), np.uint8), b"labels": [1]}),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["cat"]}),
        batch(images(2), [1, 2])[:-40],
    ],
)
def test_a_member_that_is_no_batch_is_named(tmp_path, content) -> None:
    archive = tarball(tmp_path / "bad.tar.gz", dict.fromkeys(CIFAR10.train, content))
    with pytest.raises(DataError, match=r"member cifar-10-batches-py/data_batch_1 is not a CIFAR"):
        read_pickled(archive, CIFAR10)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("package/data_batch_2.png", b"no picture", r"data_batch_2\.png is not a PNG file"),
        ("package/data_batch_2.png", png(images(2))[:-30], r"data_batch_2\.png is not a PNG file"),
        ("package/train_lables.json", b"[1, 2", "not a list of whole numbers"),
        ("package/test_lables.json", b"[1, 2]", "3 images but labels of shape"),
    ],
)
def test_a_damaged_picture_or_list_is_named(tmp_path, name, content, message) -> None:
    archive = tarball(tmp_path / "bad.tgz", picture_members() | {name: content})
    with pytest.raises(DataError, match=message):
        read_png_tarball(archive)


def test_an_archive_without_a_member_or_that_is_none_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match=r"few\.tgz.*data_batch_1"):
        read_pickled(tarball(tmp_path / "few.tgz", {"readme": b""}), CIFAR10)
    whole = official(tmp_path / "whole.tgz").read_bytes()
    for name, content in (("cut", whole[: len(whole) // 2]), ("text", b"text"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            read_pickled(tmp_path / name, CIFAR10)
    with pytest.raises(DataError, match="nowhere"):
        read_png_tarball(tmp_path / "nowhere")


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
    with pytest.raises(DataError, match="train label 10 is 10; allowed: 0 to 9"):
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
        ("meta", {b"fine_label_names": CLASSES[:2]}, "allowed: 0 to 1"),
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
