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


EFFECTIVE = os.access in os.supports_effective_ids
"""Whether the system tells what the effective user may do."""


def closed_folder(path: str | PathLike[str]) -> Path | None:
    """Return the uppermost folder above a path that this user may not enter, or None."""
    for folder in reversed(Path(path).parents):
        found = os.access(folder, os.F_OK, effective_ids=EFFECTIVE)
        if found and not os.access(folder, os.X_OK, effective_ids=EFFECTIVE):
            return folder
    return None


def explain_error(error: BaseException) -> str:
    """Return what an error says, without number and path where the system reports it.

    A folder above the path that may not be entered is named: the system names the path alone.

    >>> explain_error(IsADirectoryError(21, "Is a directory", "films.csv"))
    'Is a directory'
    """
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    closed = None
    if isinstance(error, PermissionError) and error.filename is not None:
        closed = closed_folder(os.fsdecode(error.filename))
    advice = f"; give your user the right to enter {closed}" if closed is not None else ""
    return error.strerror + advice


def why_unreadable(error: OSError, path: Path | None = None) -> str:
    """Return why a folder cannot be read, and what to do where a right is missing.

    Args:
        error: What the system reported.
        path: The folder, if it is not the path of the error.

    >>> why_unreadable(PermissionError(13, "Permission denied"))
    'cannot be read: Permission denied; give your user the rights to read and to enter it'
    """
    why = f"cannot be read: {error.strerror}"
    if not isinstance(error, PermissionError):
        return why
    closed = None if error.filename is None else closed_folder(os.fsdecode(error.filename))
    which = "it" if closed in (None, path) else closed
    return f"{why}; give your user the rights to read and to enter {which}"


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
        raise RunError(f"{path} cannot be written: {explain_error(error)}") from error
