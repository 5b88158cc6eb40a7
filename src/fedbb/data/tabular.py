"""Columns of a table as vectors of numbers: numeric, categorical and missing values.

What the encoding needs (categories, values in place of missing ones) is taken from the training
rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedbb._util.constraints import STRICT_TABLE
from fedbb._util.names import nearest
from fedbb.data.label_policy import CERTAIN
from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray

Missing = Literal["refuse", "mean", "median", "zero"]
"""What takes the place of a missing number; a missing category is not a category."""

MISSING = ("", "na", "nan", "n/a", "null", "none", "?")
"""Texts that stand for a missing value, in capital letters too."""

MOST_CATEGORIES = 100
"""Categories that a column may have unless it is named as categorical: more look like names."""


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """A table by columns.

    Attributes:
        title: file or name, for messages.
        columns: the values of each column (N,), numbers or text, where an empty text is missing.
        at: returns the place of a row, for messages.
    """

    title: str
    columns: Mapping[str, npt.NDArray[Any]]
    at: Callable[[int], str]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    def values(self, name: str) -> npt.NDArray[Any]:
        """Return a column; DataError if there is none of this name."""
        if name not in self.columns:
            raise DataError(f"{self.title}: no column {name!r}" + nearest(name, self.columns))
        return self.columns[name]

    def column(self, name: str) -> list[str]:
        """Return a column as texts, without blanks around them; a missing value is empty."""
        values = self.values(name)
        if values.dtype.kind == "b":
            values = values.astype(np.int64)
        if values.dtype.kind == "f" and (np.isnan(values) | (values == np.rint(values))).all():
            return ["" if np.isnan(value) else str(int(value)) for value in values.tolist()]
        return ["" if text == "nan" else text for text in as_text(values).tolist()]

    def place(self, row: int, column: str) -> str:
        """Return where a value is, for messages."""
        return f"{self.at(row)}, column {column}"

    def take(self, rows: IntArray) -> ColumnTable:
        """Return some rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return ColumnTable(self.title, columns, lambda row: self.at(int(rows[row])))


def as_text(values: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
    """Return values as texts without blanks around them; None and the like become empty."""
    if values.dtype.kind != "U":
        values = np.array(["" if _is_none(value) else str(value) for value in values.tolist()])
    return np.char.strip(values.astype(np.str_))


def _is_none(value: Any) -> bool:
    # NaN and pandas' NA and NaT are not equal to themselves.
    return value is None or type(value).__name__ in ("NAType", "NaTType")


@dataclass(frozen=True)
class FeatureColumns:
    """Which columns are features, and how they are read.

    Attributes:
        numeric: columns of numbers.
        categorical: columns of categories.
        missing: what takes the place of a missing number.
        indicator: whether a further feature marks which numbers were missing.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    missing: Missing
    indicator: bool


def choose_columns(
    train: ColumnTable,
    taken: Sequence[str],
    numeric: Sequence[str],
    categorical: Sequence[str],
    missing: Missing,
    indicator: bool,
) -> FeatureColumns:
    """Return the features of a table: the columns that are named, or all that are not taken.

    A column of which every training value is a number is numeric, any other categorical.
    """
    for name in (*numeric, *categorical):
        train.values(name)
        if name in taken:
            raise DataError(f"{train.title}: column {name!r} is a label or a group, not a feature")
    if numeric:
        return FeatureColumns(tuple(numeric), tuple(categorical), missing, indicator)
    rest = [name for name in train.header if name not in {*taken, *categorical}]
    numbers = [name for name in rest if _is_numeric(train.columns[name])]
    texts = [name for name in rest if name not in numbers]
    for name in texts:
        different = len(np.unique(as_text(train.columns[name])))
        if different > MOST_CATEGORIES:
            raise DataError(
                f"{train.title}: column {name!r} has {different} different texts; name it as "
                "categorical, or ignore it"
            )
    kept = [name for name in train.header if name in categorical or name in texts]
    if not numbers and not kept:
        raise DataError(f"{train.title} has no columns of features")
    return FeatureColumns(tuple(numbers), tuple(kept), missing, indicator)


@dataclass(frozen=True)
class Encoder:
    """From columns to vectors; `fit_encoder` makes one of training rows, model files hold it.

    Attributes:
        columns: the features.
        fill: what takes the place of a missing number, by column.
        categories: the categories of each categorical column, in alphabetical order.
        flagged: columns with a feature that marks where a number was missing.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    columns: FeatureColumns
    fill: Mapping[str, float]
    categories: Mapping[str, tuple[str, ...]]
    flagged: tuple[str, ...]

    def __post_init__(self) -> None:
        numeric, categorical = self.columns.numeric, self.columns.categorical
        if len({*self.wanted}) < len(self.wanted):
            raise ValueError("a column is named twice")
        if {*self.fill} != {*numeric} or not {*self.flagged} <= {*numeric}:
            raise ValueError("fill has one number for each numeric column; flagged are some")
        if {*self.categories} != {*categorical}:
            raise ValueError("categories has one list for each categorical column")

    @property
    def wanted(self) -> tuple[str, ...]:
        """Columns that a table must have."""
        return (*self.columns.numeric, *self.columns.categorical)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the entries of a vector."""
        held = ((name, self.categories[name]) for name in self.columns.categorical)
        marks = [f"{name}={value}" for name, known in held for value in known]
        return (*self.columns.numeric, *(f"{name} missing" for name in self.flagged), *marks)

    @property
    def scaled(self) -> tuple[bool, ...]:
        """Which entries are numbers to be standardized; the others are 0 and 1."""
        numbers = len(self.columns.numeric)
        return (True,) * numbers + (False,) * (len(self.features) - numbers)

    def encode(self, table: ColumnTable) -> npt.NDArray[np.float32]:
        """Return the vectors of all rows, (N, features); DataError names what the table lacks."""
        lacking = [name for name in self.wanted if name not in table.columns]
        if lacking:
            hint = nearest(lacking[0], table.columns) if len(lacking) == 1 else ""
            raise DataError(f"{table.title}: no column {', '.join(map(repr, lacking))}" + hint)
        parts: list[npt.NDArray[Any]] = []
        absent: dict[str, npt.NDArray[np.bool_]] = {}
        for name in self.columns.numeric:
            numbers = read_numbers(table, name)
            absent[name] = np.isnan(numbers)
            if absent[name].any() and self.columns.missing == "refuse":
                raise _missing(table, name, int(np.argmax(absent[name])))
            parts.append(np.where(absent[name], self.fill[name], numbers)[:, None])
        parts += [absent[name][:, None] for name in self.flagged]
        for name in self.columns.categorical:
            texts = _categories(table, name, self.columns.missing)
            parts.append(texts[:, None] == np.array(self.categories[name], dtype=np.str_))
        with np.errstate(over="ignore"):
            return np.hstack(parts).astype(np.float32)

    def unknown(self, table: ColumnTable) -> dict[str, IntArray]:
        """Return the rows with a category that no training row has, by column."""
        found = {}
        for name in self.columns.categorical:
            texts = _categories(table, name, self.columns.missing)
            rows = np.flatnonzero(~np.isin(texts, (*self.categories[name], "")))
            if len(rows):
                found[name] = rows
        return found


@dataclass(frozen=True)
class TableFormat:
    """What the rows of a table must have to become inputs of a trained model.

    Attributes:
        encoder: how columns become inputs.
        class_column: column of class names, if the classes are not columns themselves.
        id_column: column that names each row, if there was one.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    encoder: Encoder
    class_column: str | None = None
    id_column: str | None = None

    def encode(self, table: ColumnTable, *, allow_unknown: bool = False) -> npt.NDArray[np.float32]:
        """Return the inputs of all rows, (N, features).

        Args:
            table: the rows; columns that are not features are not read.
            allow_unknown: whether a category that no training row had is encoded as zeros.

        Raises:
            DataError: a column is missing, or a value cannot be encoded; the message names its row.
        """
        inputs = self.encoder.encode(table)
        for name, rows in self.encoder.unknown(table).items():
            if allow_unknown:
                break
            row, known = int(rows[0]), self.encoder.categories[name]
            shown = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
            raise DataError(
                f"{table.place(row, name)}: no training row had {table.column(name)[row]!r}; "
                f"known: {shown}; --allow-unknown (allow_unknown=True) encodes others as zeros"
            )
        return inputs


def fit_encoder(train: ColumnTable, columns: FeatureColumns) -> Encoder:
    """Return the encoder with the categories and the mean or median of training rows."""
    fill, flagged = {}, []
    for name in columns.numeric:
        numbers = read_numbers(train, name)
        held = numbers[~np.isnan(numbers)]
        if len(held) == 0:
            raise DataError(f"{train.title}: column {name!r} has no number in the training rows")
        fill[name] = _replacement(held, columns.missing)
        if columns.indicator and len(held) < len(numbers):
            flagged.append(name)
    categories = {}
    for name in columns.categorical:
        known = np.unique(_categories(train, name, columns.missing))
        categories[name] = tuple(text for text in known.tolist() if text)
    return Encoder(columns, fill, categories, tuple(flagged))


def read_numbers(table: ColumnTable, name: str) -> FloatArray:
    """Return a column as float64, NaN where a value is missing; DataError names another's row."""
    values = table.values(name)
    if values.dtype.kind in "biuf":
        numbers = values.astype(np.float64)
    else:
        texts = as_text(values)
        texts = np.where(_is_missing(texts), "nan", texts)
        try:
            numbers = texts.astype(np.float64)
        except ValueError as error:
            row = next(row for row, text in enumerate(texts.tolist()) if not _is_number(text))
            raise DataError(
                f"{table.place(row, name)}: {str(texts[row])!r} is not a number"
            ) from error
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise DataError(f"{table.place(row, name)}: the number is infinite")
    return numbers


def _categories(table: ColumnTable, name: str, missing: Missing) -> npt.NDArray[np.str_]:
    """Return a column of categories; a missing one is empty."""
    texts = np.array(table.column(name), dtype=np.str_)
    absent = _is_missing(texts)
    if absent.any() and missing == "refuse":
        raise _missing(table, name, int(np.argmax(absent)))
    return np.where(absent, "", texts)


def _missing(table: ColumnTable, name: str, row: int) -> DataError:
    return DataError(
        f"{table.place(row, name)}: the value is missing; set missing to mean, median or zero "
        "where the training data is read"
    )


def _replacement(held: FloatArray, missing: Missing) -> float:
    if missing == "median":
        return float(np.median(held))
    return 0.0 if missing == "zero" else float(held.mean())


def _is_missing(texts: npt.NDArray[np.str_]) -> npt.NDArray[np.bool_]:
    return np.isin(np.char.lower(texts), MISSING)


def _is_numeric(values: npt.NDArray[Any]) -> bool:
    if values.dtype.kind in "biuf":
        return True
    texts = as_text(values)
    held = texts[~_is_missing(texts)]
    return len(held) > 0 and all(_is_number(text) for text in np.unique(held).tolist())


def _is_number(text: str) -> bool:
    if text in CERTAIN:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
