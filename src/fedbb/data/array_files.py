"""Arrays in an .npz file or in a folder of .npy files, checked before they are read.

An array that is larger than memory should hold is read piece by piece into the cache, or mapped
where it lies.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fedbb._util.files import unreadable_data
from fedbb._util.names import nearest
from fedbb.data.download import making_folder
from fedbb.data.mapped import LARGE, chunk_rows
from fedbb.data.packed import refuse_bomb
from fedbb.errors import DataError

Array = npt.NDArray[Any]
Convert = Callable[[Array], Array]
"""Changes the layout, type or size of some rows of an array."""

FAULTS = (
    OSError,
    ValueError,
    LookupError,
    EOFError,
    MemoryError,
    OverflowError,
    RuntimeError,  # an encrypted or otherwise unusual zip file
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_PIECE = 2**24


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, whose header was read and checked, but not its content.

    Attributes:
        path: the .npz or .npy file.
        name: name of the array.
        shape: its shape.
        dtype: its type.
        member: its name in the .npz file; None for an .npy file.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    member: str | None

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def read(self) -> Array:
        """Return the array in memory, or memory-mapped if it is large and lies in an .npy file."""
        try:
            if self.member is None:
                large = self.nbytes >= LARGE
                return np.asanyarray(
                    np.load(self.path, mmap_mode="r" if large else None, allow_pickle=False)
                )
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member:
                return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
        except FAULTS as error:
            raise _unreadable(self.path, error) from error

    def pieces(self) -> Iterator[Array]:
        """Yield some rows at a time, from first to last."""
        try:
            if self.member is None:
                mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
                step = chunk_rows(mapped, _PIECE, len(mapped))
                yield from (mapped[start : start + step] for start in range(0, len(mapped), step))
                return
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member:
                _header(member)
                yield from self._stream(member)
        except FAULTS as error:
            raise _unreadable(self.path, error) from error

    def _stream(self, member: Any) -> Iterator[Array]:
        row = int(np.prod(self.shape[1:], dtype=object)) * self.dtype.itemsize
        step = max(1, _PIECE // max(1, row))
        for start in range(0, self.shape[0], step):
            number = min(step, self.shape[0] - start)
            content = member.read(number * row)
            yield np.frombuffer(content, self.dtype).reshape(number, *self.shape[1:])


def find_arrays(path: Path) -> dict[str, StoredArray]:
    """Return the arrays of an .npz file, or of the .npy files in a folder, by name.

    Raises:
        DataError: the file cannot be read, an array holds Python objects, which would run code, or
            its header does not tell its size.
    """
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise DataError(f"{path} holds no .npy files; expected: images.npy, labels.npy, …")
        return {file.stem: _in_folder(file) for file in files}
    try:
        with path.open("rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise ValueError("it holds a single array, not named ones")
            with zipfile.ZipFile(file) as archive:
                items = [item for item in archive.infolist() if item.filename.endswith(".npy")]
                found = [_in_archive(path, archive, item) for item in items]
    except FAULTS as error:
        raise _unreadable(path, error) from error
    return {array.name: array for array in found}


def read_npz(
    path: Path, needed: Sequence[str], optional: Sequence[str] | None = None
) -> dict[str, Array]:
    """Return the arrays `needed`, and those of `optional` that the file has; None means all.

    Pickled arrays are refused, since reading them runs code.
    """
    held = find_arrays(path)
    wanted = set(held) if optional is None else {*needed, *optional}
    for name in needed:
        if name not in held:
            raise missing_array(path, name, held)
    return {name: array.read() for name, array in held.items() if name in wanted}


def missing_array(path: Path, name: str, held: Mapping[str, Any]) -> DataError:
    """Return the error that a file lacks an array."""
    return DataError(f"{path}: no array {name!r}" + nearest(name, held))


def read_inputs(array: StoredArray, convert: Convert, settings: object, cache: Path) -> Array:
    """Return an array of inputs, converted; a large one as a memory map.

    An .npy file that needs no conversion is mapped where it lies. Any other large array is
    converted once, piece by piece, into the cache.

    Args:
        array: the array.
        convert: returns some of its rows as the data set holds them.
        settings: what the conversion depends on, as part of the key in the cache.
        cache: folder of converted arrays.
    """
    if array.nbytes < LARGE:
        return convert(array.read())
    if array.member is None:
        mapped = array.read()
        first = mapped[:1]
        if np.shares_memory(convert(first), first):
            return mapped.reshape(len(mapped), *convert(first).shape[1:])
    state = array.path.stat()
    key = f"arrays 1 {array.path.resolve()} {state.st_size} {state.st_mtime_ns} {array.name}"
    folder = cache / hashlib.sha256(f"{key} {settings}".encode()).hexdigest()[:32]
    if not folder.exists():
        with making_folder(folder) as fresh:
            if fresh is not None:
                _write(array, convert, fresh / "inputs.npy")
    try:
        return np.asanyarray(np.load(folder / "inputs.npy", mmap_mode="r", allow_pickle=False))
    except FAULTS as error:
        raise DataError(f"{folder} is damaged: {error}; delete it, it is rebuilt") from error


def _write(array: StoredArray, convert: Convert, path: Path) -> None:
    rows = 0
    with path.open("wb") as file:
        for piece in array.pieces():
            done = np.ascontiguousarray(convert(piece))
            if not rows:
                header = np.lib.format.header_data_from_array_1_0(done)
                header["shape"] = (array.shape[0], *done.shape[1:])
                np.lib.format.write_array_header_1_0(file, header)
            file.write(done.tobytes())
            rows += len(done)
        file.flush()
        os.fsync(file.fileno())


def _in_folder(path: Path) -> StoredArray:
    try:
        with path.open("rb") as file:
            shape, dtype = _checked(file, path.stat().st_size, path.stem)
    except FAULTS as error:
        raise unreadable_data(path, error, " as .npy") from error
    return StoredArray(path, path.stem, shape, dtype, None)


def _in_archive(path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> StoredArray:
    name = item.filename.removesuffix(".npy")
    if ".." in Path(name).parts or name.startswith("/"):
        raise DataError(f"{path}: array {name!r} is outside of the file")
    refuse_bomb(f"{path}: array {name!r}", item.compress_size, item.file_size)
    with archive.open(item) as member:
        shape, dtype = _checked(member, item.file_size, name)
    return StoredArray(path, name, shape, dtype, item.filename)


def _checked(file: Any, size: int, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of an array whose header is true to its size."""
    shape, fortran, dtype = _header(file)
    if dtype.hasobject:
        raise ValueError(
            f"array {name!r} holds Python objects, and reading them would run code; save text by "
            "np.array([...]), without dtype=object"
        )
    promised = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if promised != size - file.tell():
        raise ValueError(
            f"array {name!r} has {size - file.tell():,} bytes, and its header promises {promised:,}"
        )
    if fortran and promised >= LARGE:
        raise ValueError(f"array {name!r} is in Fortran order; save np.ascontiguousarray(...)")
    return shape, dtype


def _header(file: BinaryIO | Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:  # 3.0 differs in names of fields, which no array here has
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    return shape, fortran, dtype


def _unreadable(path: Path, error: BaseException) -> DataError:
    if isinstance(error, DataError):
        return error
    return unreadable_data(path, error, " as .npz")


def read_texts(array: Array, length: int | None, where: str) -> list[str]:
    """Return an array as texts, or raise DataError; None allows any length."""
    if array.ndim != 1 or len(array) != (len(array) if length is None else length):
        needed = "one axis" if length is None else f"({length},)"
        raise DataError(f"{where} has shape {array.shape}; needed: {needed}")
    if array.dtype.kind not in "biufUS":
        raise DataError(f"{where} is {array.dtype}; needed: text")
    try:
        texts: list[str] = array.astype(np.str_).tolist()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} cannot be read as text: {error}") from error
    return texts
