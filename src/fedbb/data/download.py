"""Downloads into a cache folder: checked by SHA-256, written to a temporary name and renamed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from fedbb.data.files import replacing
from fedbb.errors import DataError

Progress = Callable[[int, int], None]
"""Told after every piece: bytes so far, bytes in all."""

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
class Supply:
    """How the files of one data set are had and checked; each function takes the data set's folder.

    `held` gives the paths in use, none when the data set is not there. `get` downloads, or takes
    over the local file or folder it is given. `check` raises DataError at the first damaged file.
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
        with urlopen(file.url, timeout=_SECONDS) as answer:
            while received <= file.size and (piece := answer.read(_PIECE)):
                received += len(piece)
                yield piece
    except (OSError, HTTPException) as error:
        raise DataError(
            f"cannot download {file.url}: {error}. Try again, or fetch it by other means and hand "
            "over the local file"
        ) from error
