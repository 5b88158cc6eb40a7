"""Values that JSON can hold, and files written whole: a crash leaves the old one or the new one."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from fedbb.errors import DataError, RunError


def finite_or_none(value: Any) -> Any:
    """Return a value made of dictionaries, lists, texts and finite numbers only.

    Args:
        value: A number, text, array, record or mapping, nested at will.

    Returns:
        The same content; NaN and infinity, which JSON has no words for, become None.

    >>> finite_or_none({"mean": 0.5, "deviation": float("nan"), "seeds": (0, 1)})
    {'mean': 0.5, 'deviation': None, 'seeds': [0, 1]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: finite_or_none(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray | np.generic):
        return finite_or_none(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): finite_or_none(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; ValueError if it is none, or nested too deep to read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text; ValueError if it is none, or nested too deep to read."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


TEMPORARY = ".part"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file of a temporary name beside `path`; it becomes `path` once all of it is on disk.

    Whatever goes wrong inside the block, the file that was at `path` before is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete what a crash left half written in a folder that nobody else writes to now."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Push a rename to disk; only a folder's own fsync does that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> Path:
    """Write a text as UTF-8, making its folder if needed, and return its path.

    Raises:
        RunError: If the file or its folder cannot be written.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            # Names from JSON may hold half a surrogate pair, which UTF-8 cannot encode.
            file.write(text.encode("utf-8", "replace"))
    return path


PROBE = 64 * 2**10
"""Bytes that are written to find out whether a folder can be written to."""


def check_free(path: Path, least: int) -> None:
    """Raise RunError that names a folder if its disk has less than this number of bytes left."""
    free = shutil.disk_usage(path).free
    if free < least:
        raise RunError(
            f"the disk of {path} is full: {free / 1e6:.1f} MB are free, and at least "
            f"{least / 1e6:.1f} MB are needed"
        )


def check_space(path: Path, least: int) -> None:
    """Raise RunError if a folder's disk has less than this number of bytes left, or takes no file.

    A small file is really written: a quota and a missing right show in no other way.
    """
    check_free(path, least)
    with writing(path), TemporaryFile(dir=path) as file:
        file.write(bytes(PROBE))
        file.flush()


def why_unreadable(error: OSError) -> str:
    """Return why a folder cannot be read, and what to do where a right is missing.

    >>> why_unreadable(PermissionError(13, "Permission denied"))
    'cannot be read: Permission denied; give your user the rights to read and to enter it'
    """
    advice = "; give your user the rights to read and to enter it"
    return f"cannot be read: {error.strerror}{advice * isinstance(error, PermissionError)}"


def explain_error(error: BaseException) -> str:
    """Return what an error says, without number and path where the system reports it.

    >>> explain_error(IsADirectoryError(21, "Is a directory", "films.csv"))
    'Is a directory'
    """
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def unreadable_data(path: str | PathLike[str], error: BaseException, form: str = "") -> DataError:
    """Return the error to raise for a file of data that cannot be read, such as " as .npz".

    >>> unreadable_data("films.npz", FileNotFoundError(2, "No such file or directory"), " as .npz")
    DataError('films.npz does not exist')
    """
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} does not exist")
    return DataError(f"cannot read {path}{form}: {explain_error(error)}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise RunError that names this path where the block cannot write: no space, no right."""
    try:
        yield
    except shutil.Error as error:
        # One entry for each file: where from, where to, why not.
        raise RunError(f"{path} cannot be written: {error.args[0][0][-1]}") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
