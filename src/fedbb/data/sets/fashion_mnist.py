"""Fashion-MNIST: 60,000 + 10,000 grey images of 28 × 28 pixels, ten kinds of clothing."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedbb._util.files import unreadable_data
from fedbb.data.checks import check_examples
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.download import Downloader, Progress, RemoteFile, download, replacing
from fedbb.data.source import NoOptions, Source, read_options
from fedbb.errors import DataError
from fedbb.records import Task

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
MEAN, STD = (0.2860405969887955,), (0.3530242445149223,)
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the files."""

_UNSIGNED_BYTE = 0x08
_ORIGIN = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"


@dataclass(frozen=True)
class Part:
    """One idx.gz file, and what it unpacks to.

    The official files and Debian's were compressed at different times and differ in a few bytes,
    but decompress to the same content, which is what the SHA-256 is of.
    """

    remote: RemoteFile
    size: int
    sha256: str


def _part(name: str, packed: tuple[int, str], unpacked: tuple[int, str]) -> Part:
    return Part(RemoteFile(f"{name}.gz", f"{_ORIGIN}{name}.gz", *packed), *unpacked)


PARTS: Mapping[str, Part] = {
    "train images": _part(
        "train-images-idx3-ubyte",
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    ),
    "train labels": _part(
        "train-labels-idx1-ubyte",
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    ),
    "test images": _part(
        "t10k-images-idx3-ubyte",
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    ),
    "test labels": _part(
        "t10k-labels-idx1-ubyte",
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        (10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    ),
}


def load(source: Source) -> Dataset:
    """Return the data set from the given folder, the cache, or Debian's package."""
    read_options(NoOptions, source)
    folders = [source.path] if source.path else [source.folder, DEBIAN]
    folder = next((place for place in folders if _paths(place)), None)
    if folder is None:
        raise DataError(
            f"{source.name} is not in {' or '.join(map(str, folders))}; get it with "
            f"`fedbb data get {source.name}`, which also takes a local folder"
        )
    train, test = read_folder(folder, PARTS)
    return Dataset(source.name, Task.MULTICLASS, CLASSES, train, test, MEAN, STD)


def read_folder(folder: Path, parts: Mapping[str, Part]) -> tuple[Examples, Examples]:
    """Return (train, test) of the four files in a folder, each checked against its SHA-256."""
    arrays = {key: _read_part(folder, part) for key, part in parts.items()}
    return (
        _examples(arrays["train images"], arrays["train labels"], f"{folder} train"),
        _examples(arrays["test images"], arrays["test labels"], f"{folder} test"),
    )


def _examples(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], where: str) -> Examples:
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{where}: images of shape {images.shape} and labels of shape {labels.shape}; expected "
            "(N, height, width) and (N,)"
        )
    examples = Examples(images[:, None], labels.astype(np.int64))
    check_examples(examples, Task.MULTICLASS, len(CLASSES), where)
    return examples


def _read_part(folder: Path, part: Part) -> npt.NDArray[np.uint8]:
    path = folder / part.remote.name
    return parse_idx(unpack(path, part), str(path))


def unpack(path: Path, part: Part) -> bytes:
    """Return the unpacked content of a file, or DataError if it is not what it should be."""
    try:
        with gzip.open(path) as file:
            content = file.read(part.size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable_data(path, error, " as .gz") from error
    found = hashlib.sha256(content).hexdigest()
    if found != part.sha256:
        raise DataError(
            f"{path} is damaged: its content has SHA-256 {found}, expected {part.sha256}"
        )
    return content


def parse_idx(content: bytes, where: str) -> npt.NDArray[np.uint8]:
    """Return the array of a decompressed idx file; its length must match the header."""
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise DataError(
            f"{where} is not an idx file of unsigned bytes: it begins {content[:4].hex()!r}"
        )
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{where} ends inside its header")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise DataError(f"{where} says {shape} but holds {len(content) - start} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _paths(folder: Path) -> list[Path]:
    """Return the four files if all are in the folder, else none."""
    paths = [folder / part.remote.name for part in PARTS.values()]
    return paths if all(path.is_file() for path in paths) else []


def _held(folder: Path) -> list[Path]:
    return _paths(folder) or _paths(DEBIAN)


def _get(folder: Path, local: Path | None, progress: Progress | None) -> None:
    for part in PARTS.values():
        if local is None:
            download(part.remote, folder, progress)
            continue
        path = local / part.remote.name
        unpack(path, part)
        with replacing(folder / part.remote.name) as file:
            file.write(path.read_bytes())


def _check(folder: Path) -> None:
    place = folder if _paths(folder) else DEBIAN
    for part in PARTS.values():
        unpack(place / part.remote.name, part)


DOWNLOADER = Downloader(_held, _get, _check)
