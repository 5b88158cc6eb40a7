import hashlib
from functools import partial

import numpy as np
import pytest

from fedbb.data.dataset import Augmentation
from fedbb.data.download import RemoteFile
from fedbb.data.registry import check_files, get_dataset, holding, load_dataset
from fedbb.data.sets import cifar
from fedbb.data.sets.cifar import Archive, decode, fingerprint, read_decoded
from fedbb.data.sets.cifar_archive import Arrays
from fedbb.errors import DataError

ARRAYS = Arrays(
    (np.arange(20 * 3072) % 251).astype(np.uint8).reshape(20, 3, 32, 32),
    np.arange(20) % 10,
    (np.arange(5 * 3072) % 241).astype(np.uint8).reshape(5, 3, 32, 32),
    np.arange(5),
)


def read_small(wanted: bytes, path) -> Arrays:
    """Stand for a reader; what it does with real archives is told in its own tests."""
    assert path.read_bytes() == wanted
    return ARRAYS


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A small archive, known to the loader by its SHA-256, that decodes to the arrays above."""
    content = b"an archive"
    path = tmp_path / "cifar-10.tar.gz"
    path.write_bytes(content)
    known = Archive(
        "a small one", hashlib.sha256(content).hexdigest(), partial(read_small, content)
    )
    monkeypatch.setattr(cifar, "ARCHIVES", (known,))
    decoded = {name: fingerprint(array) for name, array in ARRAYS._asdict().items()}
    monkeypatch.setattr(cifar, "DECODED", decoded)
    return path


def test_an_archive_is_decoded_once_and_then_mapped_from_disk(archive, tmp_path) -> None:
    root = tmp_path / "cache"
    first = load_dataset("cifar10", root=root, path=archive)
    archive.unlink()
    second = load_dataset("cifar10", root=root)
    for dataset in (first, second):
        assert isinstance(dataset.train.images, np.memmap)
        assert np.array_equal(dataset.train.images, ARRAYS.train_images)
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
    assert not holding("cifar10", root).present
    found = get_dataset("cifar10", root, local=archive)
    assert found.present
    assert found.size > ARRAYS.train_images.nbytes
    assert check_files("cifar10", root) == found
    assert archive.exists()


def test_a_downloaded_archive_is_decoded_and_not_kept(archive, tmp_path, monkeypatch) -> None:
    content = archive.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    remote = RemoteFile("cifar-10.tar.gz", archive.as_uri(), len(content), digest)
    monkeypatch.setattr(cifar, "OFFICIAL", remote)
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
    decode(archive, tmp_path, cifar.ARCHIVES)
    np.save(tmp_path / "train_labels.npy", np.arange(20))
    with pytest.raises(DataError, match="train label 10 is 10; allowed are 0 to 9"):
        read_decoded(tmp_path)


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
