"""Files that are either whole or not there, and their checksums."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

from fedbb._util import files
from fedbb._util.files import TEMPORARY
from fedbb.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path`, folders and all, once it is whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as file:
            yield file
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def making_folder(path: Path) -> Iterator[Path | None]:
    """Yield an empty folder that becomes `path` once the block is through.

    It yields None if `path` is there, be it that another process, on which this one waited, has
    just made it. What a killed process left half done is cleared away.
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
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
