"""Arrays in shared memory, which several processes read without copying them."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_ALIGNMENT = 64


@dataclass(frozen=True)
class Place:
    """Where an array lies: in the shared block, or in a file that is memory-mapped already."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    file: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Block:
    """Arrays by name in shared memory; its file handle can be sent to another process."""

    handle: int
    places: Mapping[str, Place]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays, read-only, without copying them."""
        size = os.fstat(self.handle).st_size
        memory = mmap.mmap(self.handle, size, prot=mmap.PROT_READ) if size else b""
        return {name: _array(memory, place) for name, place in self.places.items()}

    def close(self) -> None:
        """Close the handle; arrays taken from it stay valid."""
        os.close(self.handle)


def share_arrays(arrays: Mapping[str, Array]) -> Block:
    """Copy arrays into shared memory, except those that lie in a memory-mapped file already."""
    places: dict[str, Place] = {}
    end = 0
    for name, array in arrays.items():
        place = _mapped(array)
        if place is None:
            place = Place(end, array.dtype.str, array.shape)
            end = -(-(end + place.size) // _ALIGNMENT) * _ALIGNMENT
        places[name] = place
    handle = _anonymous()
    os.ftruncate(handle, end)
    if end:
        with mmap.mmap(handle, end) as memory:
            for name, place in places.items():
                if place.file is None:
                    _view(memory, place)[...] = arrays[name]
    return Block(handle, places)


def _anonymous() -> int:
    """Return a handle to unnamed memory, which no crash can leave behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedbb")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _array(memory: mmap.mmap | bytes, place: Place) -> Array:
    if place.file is not None:
        return np.memmap(place.file, place.dtype, "r", place.offset, place.shape)
    return _view(memory, place)


def _view(memory: mmap.mmap | bytes, place: Place) -> Array:
    if place.size == 0:
        return np.empty(place.shape, place.dtype)
    flat = np.frombuffer(memory, np.uint8, place.size, place.offset)
    return flat.view(place.dtype).reshape(place.shape)


def _mapped(array: Array) -> Place | None:
    """Return where in its file a mapped array lies, None if it is not one or has gaps."""
    memory = getattr(array, "_mmap", None)
    if not isinstance(array, np.memmap) or memory is None or array.filename is None:
        return None
    if not array.flags.c_contiguous:
        return None
    # A slice of a mapped array has the offset of the whole, so the place follows from addresses.
    whole = np.frombuffer(memory, np.uint8)
    within = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    begins = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return Place(begins + within, array.dtype.str, array.shape, str(array.filename))
