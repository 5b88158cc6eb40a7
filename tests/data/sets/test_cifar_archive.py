import io
import json
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from fedbb.data.sets.cifar_archive import CIFAR10, Layout, read_pickled, read_png_tarball
from fedbb.errors import DataError

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
        ("package/train_lables.json", b"[1, 2", "no list of whole numbers"),
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
