"""Files that are either whole or not there, and their checksums."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedbb import files
from fedbb.errors import DataError
from fedbb.files import TEMPORARY


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
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` once the block is through, unless one is there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if not path.exists():
            temporary.replace(path)
    except OSError as error:
        # Another process may have made the same folder in between; either will do.
        if not path.is_dir():
            raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
