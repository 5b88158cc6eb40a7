"""Rows of memory-mapped arrays, so that a part of a data set on disk stays on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import IntArray


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
        return np.asarray(self.base[self.rows[key]])

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


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Tell whether an array lies in a file; numpy also calls copies of such arrays memmap."""
    return isinstance(array, np.memmap) and getattr(array, "_mmap", None) is not None


def chunk_rows(inputs: Inputs, numbers: int, most: int) -> int:
    """Return how many rows to read at once: at most `most`, of about `numbers` numbers in all."""
    per_row = max(1, inputs.size // max(1, len(inputs)))
    return int(min(most, max(1, numbers // per_row)))
