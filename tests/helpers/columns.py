"""A stand-in for pandas, which is no dependency: columns that know `to_numpy` and `NA` only."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class NAType:
    """Like pandas.NA: comparing it gives no truth value."""

    def __repr__(self) -> str:
        return "<NA>"

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


NA = NAType()


class Column:
    """Like a text, category or nullable column of pandas: `to_numpy` gives objects."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values
        self.dtype = "category"

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int) -> Any:
        raise KeyError(place)  # a column is asked by its own index, which need not start at 0

    def to_numpy(self) -> np.ndarray:
        return np.array(self.values, dtype=object)


class Frame(Column):
    """Like a DataFrame: rows of values under named columns."""

    def __init__(self, columns: Sequence[str], values: Sequence[Sequence[Any]]) -> None:
        super().__init__(values)
        self.columns = list(columns)
