import gzip
import hashlib
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedbb.data.download import RemoteFile
from fedbb.data.registry import cache_status, check_files, get_dataset, load_dataset
from fedbb.data.sets import fashion_mnist
from fedbb.data.sets.fashion_mnist import DEBIAN, PARTS, Part, parse_idx, read_folder, unpack
from fedbb.data.transforms import channel_statistics
from fedbb.errors import DataError

needs_debian = pytest.mark.skipif(
    not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Four small files of the real names, in a folder, known to the loader by their SHA-256."""
    folder = tmp_path / "given"
    folder.mkdir()
    parts = {}
    for key, part in PARTS.items():
        number = 6 if "train" in key else 3
        shape = (number, 28, 28) if "images" in key else (number,)
        array = (np.arange(np.prod(shape)) % 10).astype(np.uint8).reshape(shape)
        header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        content = header + array.tobytes()
        (folder / part.remote.name).write_bytes(gzip.compress(content))
        digest = hashlib.sha256(content).hexdigest()
        parts[key] = Part(replace(part.remote), len(content), digest)
    monkeypatch.setattr(fashion_mnist, "PARTS", parts)
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "no package")
    return folder


def test_files_are_read_from_a_folder_as_they_are(small) -> None:
    train, test = read_folder(small, fashion_mnist.PARTS)
    assert train.inputs.shape == (6, 1, 28, 28)
    assert train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert test.labels.dtype == np.int64
    assert test.inputs[0, 0, 0, :12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_a_folder_can_be_named_or_taken_over_into_the_cache(small, tmp_path) -> None:
    root = tmp_path / "cache"
    assert len(load_dataset("fashion-mnist", root=root, path=small).train) == 6
    assert not cache_status("fashion-mnist", root).present
    with pytest.raises(DataError, match="get it first"):
        check_files("fashion-mnist", root)
    with pytest.raises(DataError, match="fedbb data get fashion-mnist"):
        load_dataset("fashion-mnist", root=root)
    found = get_dataset("fashion-mnist", root, local=small)
    assert found.present
    assert found.size == sum(path.stat().st_size for path in small.iterdir())
    assert check_files("fashion-mnist", root) == found
    shutil.rmtree(small)
    assert len(load_dataset("fashion-mnist", root=root).test) == 3


def test_files_are_downloaded_into_the_cache(small, tmp_path, monkeypatch) -> None:
    parts = {}
    for key, part in fashion_mnist.PARTS.items():
        path = small / part.remote.name
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        remote = RemoteFile(path.name, path.as_uri(), len(content), digest)
        parts[key] = replace(part, remote=remote)
    monkeypatch.setattr(fashion_mnist, "PARTS", parts)
    assert get_dataset("fashion-mnist", tmp_path / "cache").present
    shutil.rmtree(small)
    assert len(load_dataset("fashion-mnist", root=tmp_path / "cache").train) == 6


def test_files_packed_at_another_time_are_as_good(small) -> None:
    for path in small.iterdir():
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=1))
    assert len(load_dataset("fashion-mnist", path=small).train) == 6


def test_every_flipped_byte_is_refused_or_changes_nothing(small) -> None:
    part = fashion_mnist.PARTS["test labels"]
    path = small / part.remote.name
    whole = path.read_bytes()
    content = unpack(path, part)
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert unpack(path, part) == content
        except DataError as error:
            assert path.name in str(error)  # noqa: PT017
            refused += 1
    # Only time stamp and the like of the header may change unnoticed.
    assert refused >= len(whole) - 8


def test_an_altered_or_cut_file_is_refused_by_every_way_in(small, tmp_path) -> None:
    path = small / PARTS["train images"].remote.name
    path.write_bytes(path.read_bytes()[:-20])
    for attempt in (
        lambda: load_dataset("fashion-mnist", path=small),
        lambda: get_dataset("fashion-mnist", tmp_path / "cache", local=small),
    ):
        with pytest.raises(DataError, match="train-images-idx3-ubyte"):
            attempt()


def test_a_file_that_unpacks_without_end_is_read_no_further_than_needed(small) -> None:
    part = fashion_mnist.PARTS["test labels"]
    (small / part.remote.name).write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="damaged"):
        unpack(small / part.remote.name, part)


def test_the_official_files_are_named_by_https_and_checksum() -> None:
    for part in PARTS.values():
        assert isinstance(part.remote, RemoteFile)
        assert part.remote.url.startswith("https://")
        assert part.remote.url.endswith(part.remote.name)
        assert len(part.remote.sha256) == len(part.sha256) == 64


@needs_debian
def test_the_real_data_set_is_what_it_should_be(tmp_path) -> None:
    dataset = load_dataset("fashion-mnist", root=tmp_path)
    assert np.bincount(dataset.train.labels).tolist() == [6000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    mean, std = channel_statistics(dataset.train.inputs)
    assert dataset.mean == pytest.approx(mean, abs=1e-12)
    assert dataset.std == pytest.approx(std, abs=1e-12)
    assert check_files("fashion-mnist", tmp_path).present


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


@given(arrays.arrays(np.uint8, arrays.array_shapes(max_dims=4)))
def test_an_array_comes_back_equal(array) -> None:
    assert np.array_equal(parse_idx(idx(array), "x"), array)


@given(st.binary(max_size=40))
def test_any_bytes_are_an_array_or_refused_by_name(content) -> None:
    try:
        assert parse_idx(content, "some.gz").dtype == np.uint8
    except DataError as error:
        assert "some.gz" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (bytes([0, 0, 9, 1, 0, 0, 0, 1, 7]), "not an idx file of unsigned bytes"),
        (bytes([0, 0, 8, 3, 0, 0, 0, 1]), "ends inside its header"),
        (idx(np.zeros(5, np.uint8))[:-1], r"says \(5,\) but holds 4 bytes"),
        (idx(np.zeros(5, np.uint8)) + b"x", r"says \(5,\) but holds 6 bytes"),
        # 2³² · 2³² would be 0 in 64 bits, just what is left of the file.
        (bytes([0, 0, 8, 4]) + struct.pack(">4I", 2**31, 2**31, 2, 2), "but holds 0 bytes"),
    ],
)
def test_a_damaged_file_is_refused(content, message) -> None:
    with pytest.raises(DataError, match=message):
        parse_idx(content, "x")
