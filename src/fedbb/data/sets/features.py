"""Tables of features: a CSV, parquet or .npz file, or a data frame, for networks of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.array_files import read_npz
from fedbb.data.checks import check_dataset
from fedbb.data.csv_table import read_class_column, read_csv, read_label_columns, refuse_doubles
from fedbb.data.dataset import Dataset
from fedbb.data.examples import Examples
from fedbb.data.label_policy import Policy
from fedbb.data.parquet import read_parquet
from fedbb.data.source import Source, read_options
from fedbb.data.splits import split_by_share, split_by_values
from fedbb.data.tabular import (
    ColumnTable,
    Encoder,
    Missing,
    TableFormat,
    choose_columns,
    fit_encoder,
)
from fedbb.errors import DataError
from fedbb.records import IntArray, Task


@dataclass(frozen=True)
class FeatureOptions:
    """How to read a table of features.

    Attributes:
        label_columns: columns of 0 and 1, for multi-label data.
        class_column: column of class names, for multi-class data.
        classes: names of the classes in order; by default all that occur.
        numeric: columns of numbers; by default all other columns that hold numbers.
        categorical: columns of categories; by default all other columns of text.
        ignore: columns that are not used.
        columns: further columns to keep, such as the site; they are not features.
        id_column: column that names each row; a name that occurs twice is refused.
        split_column: column with train, test or val for each row.
        leave_out: values of `split_column` whose rows are not used.
        test_share: share of test rows where there is no `split_column`.
        group: column of which no value is in both parts, such as the patient; no feature.
        missing: what takes the place of a missing number.
        indicator: whether a further feature marks which numbers were missing.
        uncertain: what −1 in a label column means.
        blank: what a blank in a label column means.
    """

    label_columns: tuple[str, ...] = ()
    class_column: str | None = None
    classes: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    id_column: str | None = None
    split_column: str | None = None
    leave_out: tuple[str, ...] = ()
    test_share: float = 0.2
    group: str | None = None
    missing: Missing = "refuse"
    indicator: bool = False
    uncertain: Policy = "refuse"
    blank: Policy = "refuse"

    @property
    def kept(self) -> tuple[str, ...]:
        """Columns that the data set keeps beside its features."""
        named = (*self.columns, self.group, self.id_column)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def taken(self) -> tuple[str, ...]:
        """Columns that are not features."""
        others = (self.class_column, self.split_column)
        named = (*self.kept, *self.label_columns, *self.ignore, *others)
        return tuple(name for name in named if name is not None)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a table with their labels, to be split before they are encoded."""

    table: ColumnTable
    labels: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[np.str_]]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: IntArray) -> _Rows:
        columns = {name: values[indices] for name, values in self.columns.items()}
        return _Rows(self.table.take(indices), self.labels[indices], columns)


def load(source: Source) -> Dataset:
    """Return the data set of a file of features."""
    options = read_options(FeatureOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: a .csv, .parquet or .npz file")
    return make_dataset(source.path.stem, read_table(source.path), options, source.seed)


def read_table(path: Path) -> ColumnTable:
    """Read a table, by the ending of its file."""
    if path.suffix == ".parquet":
        return read_parquet(path)
    if path.suffix == ".npz":
        return _read_arrays(path)
    table = read_csv(path)
    columns = {name: np.array(table.column(name), dtype=np.str_) for name in table.header}
    return ColumnTable(str(path), columns, lambda row: f"{path}: line {table.line(row)}")


def _read_arrays(path: Path) -> ColumnTable:
    """Return the matrix `features` of an .npz file by column, and its further arrays (N,)."""
    arrays = read_npz(path, ("features",))
    matrix = arrays.pop("features")
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise DataError(
            f"{path}: features is {matrix.dtype} of shape {matrix.shape}; needed: numbers "
            "(N, features)"
        )
    given = arrays.pop("feature_names", np.arange(matrix.shape[1])).astype(np.str_)
    names = [str(name) for name in given.ravel().tolist()]
    if len(names) != matrix.shape[1] or len(set(names)) < len(names):
        raise DataError(
            f"{path}: feature_names must name each of the {matrix.shape[1]} features once"
        )
    columns: dict[str, npt.NDArray[Any]] = dict(zip(names, matrix.T, strict=True))
    for name, values in arrays.items():
        if values.shape != (len(matrix),):
            raise DataError(
                f"{path}: {name} has shape {values.shape}; features need ({len(matrix)},)"
            )
        columns[name] = values
    return ColumnTable(str(path), columns, lambda row: f"{path}: row {row}")


def table_of_frame(frame: Any, name: str) -> ColumnTable:
    """Return a frame of pandas or Polars, or a mapping of columns, as a table."""
    held = list(getattr(frame, "columns", frame))
    if len(set(map(str, held))) < len(held):
        raise DataError(f"{name} names a column twice")
    columns = {str(column): _array(frame[column]) for column in held}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or any(values.ndim != 1 for values in columns.values()):
        raise DataError(f"{name} must have columns of one length, each with one axis")
    return ColumnTable(name, columns, lambda row: f"{name} row {row}")


def _array(values: Any) -> npt.NDArray[Any]:
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    return array if array.dtype.kind in "biufUO" else array.astype(np.str_)


def make_dataset(
    name: str,
    table: ColumnTable,
    options: FeatureOptions,
    seed: int,
    parts: Mapping[str, ColumnTable] | None = None,
    share: bool = True,
) -> Dataset:
    """Return the data set of a table.

    Args:
        name: name of the data set.
        table: the training rows, or all rows.
        options: what the columns mean.
        seed: of the draw of a test share.
        parts: tables "test" and "validation", if they are apart.
        share: whether a test share may be drawn where nothing says which rows are for testing.
    """
    task, classes, rows = _read_rows(table, options)
    if parts:
        options = replace(options, classes=classes)
        split = {"train": rows}
        split |= {part: _read_rows(held, options)[2] for part, held in parts.items()}
    else:
        if options.split_column is None and not share:
            raise DataError(f"{name} needs test data, test_share or split_column")
        split = _split(rows, table, options, seed)
    if len(split["train"]) == 0:
        raise DataError(f"{name} has no training rows")
    encoder = _fit(split["train"].table, options)
    examples = {
        part: Examples(encoder.encode(held.table), held.labels, held.columns)
        for part, held in split.items()
    }
    dataset = Dataset(
        name,
        task,
        classes,
        examples["train"],
        examples["test"],
        notes=tuple(_unknown_categories(encoder, split)),
        validation=examples.get("validation"),
        features=encoder.features,
        scaled=encoder.scaled,
        table=TableFormat(encoder, options.class_column, options.id_column),
    )
    return check_dataset(dataset).normalized()


def _fit(train: ColumnTable, options: FeatureOptions) -> Encoder:
    chosen = choose_columns(
        train,
        options.taken,
        options.numeric,
        options.categorical,
        options.missing,
        options.indicator,
    )
    return fit_encoder(train, chosen)


def _unknown_categories(encoder: Encoder, split: Mapping[str, _Rows]) -> Iterator[str]:
    """Yield a note for each column of test or validation rows with categories of their own."""
    for part in ("test", "validation"):
        if part in split:
            for column, rows in encoder.unknown(split[part].table).items():
                yield (
                    f"{len(rows)} {part} rows have a {column} that no training row has; "
                    "all of its entries are 0"
                )


def _read_rows(table: ColumnTable, options: FeatureOptions) -> tuple[Task, tuple[str, ...], _Rows]:
    """Return the task, the classes, and the rows with their labels and columns."""
    if bool(options.label_columns) == (options.class_column is not None):
        raise DataError(
            f"{table.title}: say where the labels are, by either label_columns or class_column"
        )
    for name in options.ignore:
        table.values(name)
    columns = {name: np.array(table.column(name), dtype=np.str_) for name in options.kept}
    if options.id_column is not None:
        refuse_doubles(table, options.id_column)
    labels: npt.NDArray[Any]
    if options.class_column is not None:
        classes, labels = read_class_column(table, options.class_column, options.classes)
        return Task.MULTICLASS, classes, _Rows(table, labels, columns)
    labels = read_label_columns(table, options.label_columns, options.uncertain, options.blank)
    return Task.MULTILABEL, options.label_columns, _Rows(table, labels, columns)


def _split(rows: _Rows, table: ColumnTable, options: FeatureOptions, seed: int) -> dict[str, _Rows]:
    column = options.split_column
    if column is None:
        train, test = split_by_share(rows, options.test_share, options.group, seed)
        return {"train": train, "test": test}
    train, test, validation = split_by_values(
        rows, table.column(column), options.leave_out, lambda row: table.place(row, column)
    )
    held = {} if validation is None else {"validation": validation}
    return {"train": train, "test": test, **held}
