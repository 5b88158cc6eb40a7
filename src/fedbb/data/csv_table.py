"""CSV files: read whole, or part by part in constant memory; errors name the line.

Line numbers are not kept. A message that needs one reads the file again.
"""

from __future__ import annotations

import csv
import io
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
import numpy.typing as npt

from fedbb._util.files import unreadable_data
from fedbb._util.names import nearest
from fedbb.data.download import Progress
from fedbb.data.label_policy import Policy, explain_label, label_values
from fedbb.data.packed import CheckedGzip
from fedbb.errors import DataError
from fedbb.records import IntArray

PART_ROWS = 10_000
"""Rows read at a time: few enough for any memory, many enough to be quick."""

Rows = list[list[str]]


@dataclass(frozen=True)
class CsvTable:
    """The rows of a CSV file; blank lines are left out."""

    path: Path
    header: tuple[str, ...]
    rows: Rows

    @property
    def title(self) -> str:
        """The file, for messages."""
        return str(self.path)

    def column(self, name: str) -> list[str]:
        """Return the values of a column, without blanks around them."""
        if name not in self.header:
            raise DataError(f"{self.path}: no column {name!r}" + nearest(name, self.header))
        place = self.header.index(name)
        return [row[place].strip() for row in self.rows]

    def line(self, row: int) -> int:
        """Return the line of the file on which a row ends."""
        return next(line for line, _ in islice(_records(self.path), row + 1, None))

    def place(self, row: int, column: str) -> str:
        """Return where a value is, for messages."""
        return f"{self.path}: line {self.line(row)}, column {column}"


def read_csv(path: Path) -> CsvTable:
    """Read a whole file; DataError names what is wrong and the line."""
    with open_csv(path) as (header, parts):
        rows = [row for part in parts for row in part]
    if not rows:
        raise DataError(f"{path} names its columns but has no rows")
    return CsvTable(path, header, rows)


@contextmanager
def open_csv(
    path: Path, progress: Progress | None = None
) -> Iterator[tuple[tuple[str, ...], Iterator[Rows]]]:
    """Yield the header and the rows, `PART_ROWS` at a time.

    The file is plain or .gz, in UTF-8 with or without a byte-order mark, with any line ends.
    `progress` is called with the bytes read so far and the size of the file. A parquet file is
    read as the CSV file of its texts.
    """
    if path.suffix == ".parquet":
        lines = _records(path)
        _, names = next(lines)
        yield tuple(names), _in_parts(row for _, row in lines)
        return
    try:
        with _open_text(path, progress) as (file, advance):
            reader = csv.reader(file, strict=True)
            records = _checked(reader, path)
            header = tuple(name.strip() for name in next((row for row in records if row), []))
            _check_header(header, path)

            def parts() -> Iterator[Rows]:
                while part := list(islice(records, PART_ROWS)):
                    rows = [row for row in part if row]
                    if any(len(row) != len(header) for row in rows):
                        raise _wrong_width(path, len(header))
                    advance()
                    yield rows

            yield header, parts()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise unreadable_data(path, error, " as CSV in UTF-8") from error


def _in_parts(rows: Iterator[list[str]]) -> Iterator[Rows]:
    while part := list(islice(rows, PART_ROWS)):
        yield part


def each_value(path: Path, column: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the value of each row; the file is read again."""
    records = _records(path)
    _, header = next(records)
    place = [name.strip() for name in header].index(column)
    for line, row in records:
        yield line, row[place].strip()


def refuse_doubles(table: LabelTable, column: str) -> None:
    """Raise DataError if a value of a column, such as an id or a file name, is there twice."""
    first: dict[str, int] = {}
    for row, name in enumerate(table.column(column)):
        if first.setdefault(name, row) != row:
            before = table.place(first[name], column).removeprefix(f"{table.title}: ")
            raise DataError(f"{table.place(row, column)}: {name} is at {before} too")


def find_line(path: Path, column: str, matches: Callable[[str], bool]) -> int:
    """Return the first line on which the value of a column matches."""
    return next((line for line, value in each_value(path, column) if matches(value)), 0)


class LabelTable(Protocol):
    """A table whose columns hold labels."""

    @property
    def title(self) -> str:
        """The table, for messages."""
        ...

    def column(self, name: str) -> list[str]:
        """Return the values of a column as texts."""
        ...

    def place(self, row: int, column: str) -> str:
        """Return where a value is, for messages."""
        ...


def read_class_column(
    table: LabelTable, column: str, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], IntArray]:
    """Return the classes, by default all that occur in alphabetical order, and labels (N,)."""
    values = table.column(column)
    if "" in values:
        raise DataError(f"{table.place(values.index(''), column)}: there is no class name")
    known = classes or tuple(sorted(set(values)))
    number = {name: place for place, name in enumerate(known)}
    for row, value in enumerate(values):
        if value not in number:
            raise DataError(
                f"{table.place(row, column)}: {value!r} is not a class" + nearest(value, known)
            )
    return known, np.array([number[value] for value in values], dtype=np.int64)


def read_label_columns(
    table: LabelTable, columns: tuple[str, ...], uncertain: Policy, blank: Policy
) -> npt.NDArray[np.float32]:
    """Return labels (N, C) of 0, 1 and, where a policy leaves a label unknown, NaN."""
    meaning = label_values(uncertain, blank)
    labels = []
    for column in columns:
        values = table.column(column)
        for row, value in enumerate(values):
            if value not in meaning:
                raise DataError(f"{table.place(row, column)}: {explain_label(value)}")
        labels.append([meaning[value] for value in values])
    return np.array(labels, dtype=np.float32).T.copy()


def _checked(reader: Any, path: Path) -> Iterator[list[str]]:
    """Yield the rows of a reader; malformed CSV becomes a DataError with its line."""
    try:
        yield from reader
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: {error}") from error


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, values) of the header and of each row that is not blank.

    Of a parquet file the lines are those of the CSV file that it would be.
    """
    if path.suffix == ".parquet":
        # pyarrow is an extra.
        from fedbb.data.parquet import read_parquet

        table = read_parquet(path, nested=True)
        columns = [table.column(name) for name in table.header]
        yield 1, list(table.header)
        yield from ((line, list(row)) for line, row in enumerate(zip(*columns, strict=True), 2))
        return
    with _open_text(path, None) as (file, _):
        reader = csv.reader(file, strict=True)
        for row in reader:
            if row:
                yield reader.line_num, row


def _check_header(header: tuple[str, ...], path: Path) -> None:
    if not header:
        raise DataError(f"{path} is empty; its first line must name the columns")
    if any(unicodedata.category(char) == "Cc" for char in "".join(header) if char not in "\t\r\n"):
        raise DataError(f"{path} is not a text table: its first line has control characters")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise DataError(f"{path}: line 1 names the column {name!r} twice")
        seen.add(name)


def _wrong_width(path: Path, width: int) -> DataError:
    for line, row in _records(path):
        if len(row) != width:
            return DataError(f"{path}: line {line} has {len(row)} values for {width} columns")
    return DataError(f"{path} changed while it was read")


@contextmanager
def _open_text(
    path: Path, progress: Progress | None
) -> Iterator[tuple[TextIO, Callable[[], None]]]:
    """Yield the text of a file, and a function that reports how far it has been read."""
    size = path.stat().st_size
    with path.open("rb") as raw:
        stream: Any = CheckedGzip(raw, str(path)) if path.suffix == ".gz" else raw

        def advance() -> None:
            if progress is not None:
                progress(raw.tell(), size)

        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as file:
            yield file, advance
