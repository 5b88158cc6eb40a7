"""Files of data sets: the cache folder, downloads, checksums and atomic writes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.request import urlopen

from filelock import FileLock

from fedbb._util import files
from fedbb._util.files import TEMPORARY, unreadable_data
from fedbb.errors import DataError

Progress = Callable[[int, int], None]
"""Called with what is done so far and the whole, in bytes or in images."""

_PIECE = 1 << 18
_SECONDS = 60


@dataclass(frozen=True)
class RemoteFile:
    """A file of the internet, known by size and SHA-256."""

    name: str
    url: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Downloader:
    """How the files of one data set are found, downloaded and verified.

    Each function takes the data set's folder. `held` returns the paths in use, or none if the data
    set is missing. `get` downloads, or copies the local file or folder it is given. `check` raises
    DataError at the first damaged file.
    """

    held: Callable[[Path], list[Path]]
    get: Callable[[Path, Path | None, Progress | None], None]
    check: Callable[[Path], None]


def cache_folder() -> Path:
    """Return FEDBB_DATA, or fedbb's part of the user's cache folder."""
    chosen = os.environ.get("FEDBB_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "fedbb"


def download(file: RemoteFile, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a file into a folder; nothing appears there unless the checksum is right."""
    target = folder / file.name
    digest = hashlib.sha256()
    done = 0
    with replacing(target) as out:
        for piece in _pieces(file):
            out.write(piece)
            digest.update(piece)
            done += len(piece)
            if progress is not None:
                progress(done, file.size)
        if digest.hexdigest() != file.sha256:
            raise DataError(
                f"{file.url} gave {done} bytes of SHA-256 {digest.hexdigest()}; "
                f"expected {file.size} bytes of {file.sha256}. Nothing was kept"
            )
    return target


def _pieces(file: RemoteFile) -> Iterator[bytes]:
    """Yield what the server sends, up to one piece more than was promised."""
    received = 0
    try:
        # The addresses are our own; what comes is checked against its SHA-256.
        with urlopen(file.url, timeout=_SECONDS) as answer:  # noqa: S310
            while received <= file.size and (piece := answer.read(_PIECE)):
                received += len(piece)
                yield piece
    except (OSError, HTTPException) as error:
        raise DataError(
            f"cannot download {file.url}: {error}. Try again, or get it by other means and give it "
            "to `fedbb data get` by --from"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path`, folders and all, once it is whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as file:
            yield file
    except OSError as error:
        raise DataError(f"cannot write {path}: {files.explain_error(error)}") from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable_data(path, error) from error


@contextmanager
def making_folder(path: Path) -> Iterator[Path | None]:
    """Yield an empty folder that becomes `path` when the block ends.

    It yields None if `path` exists, also if another process has just made it while this one waited
    for the lock. What a killed process left unfinished is removed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            if path.exists():
                yield None
                return
            temporary = path.with_name(f".{path.name}{TEMPORARY}")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            try:
                yield temporary
                temporary.replace(path)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise DataError(f"cannot write {path}: {files.explain_error(error)}") from error
