"""Parquet files, where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.files import unreadable_data
from fedbb.data.packed import refuse_bomb
from fedbb.data.tabular import ColumnTable
from fedbb.errors import DataError


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, nested: bool = False
) -> ColumnTable:
    """Read a parquet file by columns; DataError if it cannot be read or pyarrow is missing.

    Lists and other nested values are refused, unless `nested` takes them as texts.
    """
    arrow = import_arrow(f"{path} is a parquet file")
    import pyarrow.parquet

    try:
        # A file of Arrow's own, read when asked: its threads would read ahead in a file of Python
        # that is closed, and gone, after an error.
        with arrow.OSFile(str(path)) as file:
            held = pyarrow.parquet.read_metadata(file)
            cells = held.num_rows * (held.num_columns if columns is None else len(columns))
            refuse_bomb(str(path), path.stat().st_size, 8 * cells, densest=2000)
            table = pyarrow.parquet.read_table(file, columns=columns, pre_buffer=False)
    except (OSError, ValueError, KeyError, arrow.ArrowException) as error:
        raise unreadable_data(path, error, " as parquet") from error
    if len(table) == 0:
        raise DataError(f"{path} names its columns but has no rows")
    if len(set(table.column_names)) < len(table.column_names):
        raise DataError(f"{path} names a column twice")
    for field in table.schema:
        if pyarrow.types.is_nested(field.type) and not nested:
            raise DataError(
                f"{path}: column {field.name} holds {field.type}; needed: columns of numbers "
                "or texts"
            )
    values = {name: to_numpy(table.column(name)) for name in table.column_names}
    return ColumnTable(str(path), values, lambda row: f"{path}: row {row}")


def to_numpy(column: Any) -> npt.NDArray[Any]:
    """Return a column of Arrow as numbers, or as texts in which a missing value is empty."""
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if arrow.types.is_boolean(kind) and column.null_count:
        column = column.cast(arrow.int8())
    if (
        arrow.types.is_boolean(kind)
        or arrow.types.is_integer(kind)
        or arrow.types.is_floating(kind)
    ):
        return np.asarray(column.to_numpy())
    texts = ["" if value is None else str(value) for value in column.to_pylist()]
    return np.array(texts, dtype=np.str_)


def import_arrow(reason: str) -> Any:
    """Return the module pyarrow; DataError says how to install it."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(f'{reason}, which needs pyarrow: pip install "fedbb[arrow]"') from error
    return pyarrow
