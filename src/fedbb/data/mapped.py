"""Rows of memory-mapped arrays, so that a part of a data set on disk stays on disk."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import IntArray

LARGE = 2**28
"""Bytes from which an array is not held in memory."""


class MappedRows:
    """Some rows of a memory-mapped array; they are read when they are indexed.

    Args:
        base: the array on disk.
        rows: the rows, in the order in which this object numbers them.
    """

    def __init__(self, base: np.memmap[Any, Any], rows: IntArray) -> None:
        self.base = base
        self.rows = rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that these rows would form in memory."""
        return (len(self.rows), *self.base.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        found: np.dtype[Any] = self.base.dtype
        return found

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.base.ndim

    @property
    def size(self) -> int:
        """Number of all numbers."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        """Return rows as an array in memory."""
        values = np.asarray(self.base[self.rows[key]])
        if self.base.nbytes >= LARGE:
            _release(self.base)
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return all rows as an array in memory."""
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype, copy=False)


Inputs = npt.NDArray[Any] | MappedRows
"""Inputs of a data set: in memory, memory-mapped, or some rows of a memory-mapped array."""


def take_rows(inputs: Inputs, rows: IntArray) -> Inputs:
    """Return the inputs at these places; those of a memory-mapped array stay on disk."""
    if isinstance(inputs, MappedRows):
        return MappedRows(inputs.base, inputs.rows[rows])
    if isinstance(inputs, np.memmap) and inputs.flags.c_contiguous and is_mapped(inputs):
        return MappedRows(inputs, np.asarray(rows, dtype=np.int64))
    return inputs[rows]


def stay_on_disk(inputs: Inputs) -> Inputs:
    """Return a large memory-mapped array as its rows, so that pages that were read are released."""
    if isinstance(inputs, np.memmap) and inputs.nbytes >= LARGE:
        return take_rows(inputs, np.arange(len(inputs)))
    return inputs


def _release(array: np.memmap[Any, Any]) -> None:
    """Take the pages of a mapped array off this process; the system's cache of the file stays.

    They would be given back when memory is short, but count as memory of the process until then.
    """
    memory = getattr(array, "_mmap", None)
    if isinstance(memory, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Tell whether an array lies in a file; numpy also calls copies of such arrays memmap."""
    return isinstance(array, np.memmap) and getattr(array, "_mmap", None) is not None


def chunk_rows(inputs: Inputs, numbers: int, most: int) -> int:
    """Return how many rows to read at once: at most `most`, of about `numbers` numbers in all."""
    per_row = max(1, inputs.size // max(1, len(inputs)))
    return int(min(most, max(1, numbers // per_row)))


def value_range(inputs: Inputs) -> tuple[int, int]:
    """Return the least and the greatest of whole numbers, such as token ids."""
    step = chunk_rows(inputs, 2**24, len(inputs))
    starts = range(0, len(inputs), step)
    ends = [_ends(inputs[start : start + step]) for start in starts]
    return min(least for least, _ in ends), max(most for _, most in ends)


def _ends(piece: npt.NDArray[Any]) -> tuple[int, int]:
    return int(piece.min()), int(piece.max())
