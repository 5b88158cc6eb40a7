"""A user's CSV file as columns of text that know their lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fedbb._util.names import nearest
from fedbb.errors import DataError


@dataclass(frozen=True)
class Sheet:
    """The rows of a CSV file, each with the number of the line it ends on."""

    path: Path
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def column(self, name: str) -> list[str]:
        """Return the values of a column, without blanks around them."""
        if name not in self.header:
            raise DataError(f"{self.path}: no column {name!r}" + nearest(name, self.header))
        place = self.header.index(name)
        return [row[place].strip() for row in self.rows]

    def place(self, row: int, column: str) -> str:
        """Say where a value stands, for messages."""
        return f"{self.path}: line {self.lines[row]}, column {column}"


def read_sheet(path: Path) -> Sheet:
    """Read a CSV file in UTF-8, with or without a byte-order mark, with any line ends."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            records = list(_records(file, path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as CSV in UTF-8: {error}") from error
    if not records:
        raise DataError(f"{path} is empty; its first line must name the columns")
    (_, header), *rows = records
    names = tuple(name.strip() for name in header)
    _check(path, names, rows)
    return Sheet(path, names, tuple(row for _, row in rows), tuple(line for line, _ in rows))


def _records(file: TextIO, path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (line, values) of each row that is not blank."""
    reader = csv.reader(file, strict=True)
    try:
        for record in reader:
            if record:
                yield reader.line_num, tuple(record)
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: {error}") from error


def _check(path: Path, names: tuple[str, ...], rows: list[tuple[int, tuple[str, ...]]]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path}: line 1 names the column {name!r} twice")
    if not rows:
        raise DataError(f"{path} names its columns but has no rows")
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(f"{path}: line {line} has {len(row)} values for {len(names)} columns")
