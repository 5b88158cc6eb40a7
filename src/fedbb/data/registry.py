"""Every data set by name: what it is, where it comes from, how it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedbb._util.names import nearest
from fedbb._util.plugins import load_plugin, plugin_names
from fedbb.data.checks import check_dataset
from fedbb.data.dataset import Dataset
from fedbb.data.download import Downloader, Progress
from fedbb.data.sets import (
    chexpert,
    cifar,
    dicom,
    embedded,
    fashion_mnist,
    features,
    folder,
    hugging_face,
    medmnist,
    nih_cxr14,
    npz,
    table,
    tiny_imagenet,
)
from fedbb.data.source import Source
from fedbb.errors import DataError, FedbbError
from fedbb.records import Task


@dataclass(frozen=True)
class Entry:
    """One data set of the catalogue; `task` is None where the user's labels decide."""

    task: Task | None
    description: str
    origin: Literal["embedded", "download", "your files"]
    load: Callable[[Source], Dataset]
    downloader: Downloader | None = None


CATALOGUE: Mapping[str, Entry] = {
    "digits": Entry(
        Task.MULTICLASS,
        "1,797 handwritten digits of 8 × 8 pixels, from scikit-learn",
        "embedded",
        embedded.load_digits,
    ),
    "digit-mosaic": Entry(
        Task.MULTILABEL,
        "4,000 mosaics of up to four digits, some common and some rare",
        "embedded",
        embedded.load_mosaic,
    ),
    "breast-cancer": Entry(
        Task.MULTICLASS,
        "30 measurements of 569 tumors, from scikit-learn",
        "embedded",
        embedded.load_tumors,
    ),
    "fashion-mnist": Entry(
        Task.MULTICLASS,
        "70,000 grey images of clothing, 28 × 28 pixels, ten classes",
        "download",
        fashion_mnist.load,
        fashion_mnist.DOWNLOADER,
    ),
    "cifar10": Entry(
        Task.MULTICLASS,
        "60,000 color images of 32 × 32 pixels, ten classes",
        "download",
        cifar.load_cifar10,
        cifar.DOWNLOADER10,
    ),
    "cifar100": Entry(
        Task.MULTICLASS,
        "60,000 color images of 32 × 32 pixels, a hundred classes",
        "download",
        cifar.load_cifar100,
        cifar.DOWNLOADER100,
    ),
    "tiny-imagenet": Entry(
        Task.MULTICLASS,
        "110,000 color images of 64 × 64 pixels, 200 classes",
        "download",
        tiny_imagenet.load,
        tiny_imagenet.DOWNLOADER,
    ),
    "nih-cxr14": Entry(
        Task.MULTILABEL,
        "chest films with 14 findings, as published or in an .npz file",
        "your files",
        nih_cxr14.load,
    ),
    "chexpert": Entry(
        Task.MULTILABEL,
        "chest films with ten findings, some of them uncertain",
        "your files",
        chexpert.load,
    ),
    "npz": Entry(None, "arrays of your own in an .npz file or .npy files", "your files", npz.load),
    "folder": Entry(
        Task.MULTICLASS, "images of your own, one folder per class", "your files", folder.load
    ),
    "dicom": Entry(
        None, "DICOM images of your own, with a CSV file of their labels", "your files", dicom.load
    ),
    "hf": Entry(
        None, "a data set that Hugging Face's library saved", "your files", hugging_face.load
    ),
    "features": Entry(
        None, "a table of features of your own: CSV, parquet or .npz", "your files", features.load
    ),
    "medmnist": Entry(None, "an .npz file of MedMNIST", "your files", medmnist.load),
    "table": Entry(
        None, "images of your own, with a CSV file of their labels", "your files", table.load
    ),
}


@dataclass(frozen=True)
class CacheStatus:
    """The files of a data set on this machine, and their size in bytes."""

    name: str
    present: bool
    files: tuple[Path, ...] = ()
    size: int = 0


def dataset_names() -> list[str]:
    """Return the names of the catalogue, then those that installed packages register."""
    registered = (name for name in plugin_names("fedbb.datasets") if name not in CATALOGUE)
    return [*CATALOGUE, *registered]


def find_entry(name: str) -> Entry:
    """Return what is known of a data set; a package that registers it is not yet imported.

    Args:
        name: a name of `CATALOGUE`, or one that an installed package registers as
            `fedbb.datasets`.

    Raises:
        DataError: the name is unknown; the message has the nearest known one.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    known = dataset_names()
    if name not in known:
        raise DataError(f"unknown data set {name!r}" + nearest(name, known))
    return Entry(None, "registered by an installed package", "your files", _load_registered)


def _load_registered(source: Source) -> Dataset:
    loader = load_plugin("fedbb.datasets", source.name)
    try:
        dataset = loader(source)
    except FedbbError:
        raise
    except Exception as error:
        raise DataError(
            f"{source.name} data cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"the loader of {source.name} data gives a {type(dataset).__name__}, not a "
            "fedbb.Dataset"
        )
    return check_dataset(dataset)


def load_dataset(
    source: Source | str,
    *,
    seed: int = 0,
    root: Path | str | None = None,
    path: Path | str | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load a data set.

    >>> load_dataset("digits").train.inputs.shape
    (1438, 1, 8, 8)

    Args:
        source: the name of a data set, see `CATALOGUE`, or of one that an installed package
            registers; or a `Source`, which then holds all the other arguments.
        seed: of what the loader draws, such as a test share.
        root: folder of downloads; None is the cache folder (`FEDBB_DATA`).
        path: the user's own file or folder.
        options: options of the data set, as in a recipe.
        progress: called with the number of decoded images and the number of all.

    Returns:
        The data set, checked.

    Raises:
        DataError: an unknown name or option, or files that are missing or damaged.
    """
    if isinstance(source, str):
        downloads, file = (None if place is None else Path(place) for place in (root, path))
        source = Source(source, downloads, file, seed, options or {}, progress)
    entry = find_entry(source.name)
    if source.path is not None and entry.origin == "embedded":
        raise DataError(f"{source.name} is embedded and takes no path; got {source.path}")
    try:
        return entry.load(source)
    except DataError as error:
        # Checks of the loaded data know its name and the row, not the file.
        own = source.path is None or f"{source.name} data: " in str(error)
        if own or str(source.path) in str(error):
            raise
        raise DataError(f"{source.path}: {error}") from error


def cache_status(name: str, root: Path | None = None) -> CacheStatus:
    """Return whether a data set can be loaded without a download, and its size on disk."""
    entry = find_entry(name)
    if entry.downloader is None:
        return CacheStatus(name, present=entry.origin == "embedded")
    files = entry.downloader.held(Source(name, root).folder)
    size = sum(file.stat().st_size for file in files)
    return CacheStatus(name, bool(files), tuple(files), size)


def get_dataset(
    name: str,
    root: Path | None = None,
    local: Path | None = None,
    progress: Progress | None = None,
) -> CacheStatus:
    """Put a data set into the cache, from the internet or from a local file or folder."""
    downloader = _downloader(name)
    if downloader is not None and (local is not None or not cache_status(name, root).present):
        downloader.get(Source(name, root).folder, local, progress)
    return cache_status(name, root)


def check_files(name: str, root: Path | None = None) -> CacheStatus:
    """Verify the files of a data set by SHA-256; DataError names a damaged or missing one."""
    downloader = _downloader(name)
    found = cache_status(name, root)
    if not found.present:
        raise DataError(f"{name} is not in {Source(name, root).folder}; get it first")
    if downloader is not None:
        downloader.check(Source(name, root).folder)
    return found


def _downloader(name: str) -> Downloader | None:
    """Return the downloader of a data set, None if it is embedded; a user's own is refused."""
    entry = find_entry(name)
    if entry.origin == "your files":
        raise DataError(f"{name} reads your own files: name them by path, there is nothing to get")
    return entry.downloader
