"""Reading a CSV file of labels a part at a time: what is kept is a number or two for each row."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from fedbb.analysis.label_columns import Layout, complete
from fedbb.analysis.label_file import Progress, Rows, each_value, find_line, open_parts
from fedbb.analysis.label_marks import as_labels
from fedbb.analysis.labels import Labels
from fedbb.analysis.tally import natural_order
from fedbb.errors import DataError
from fedbb.records import IntArray


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Labels of a file, with the client and the patient of each row where it names them."""

    labels: Labels
    layout: Layout
    clients: tuple[str, ...] | None = None
    owners: IntArray | None = None
    patients: IntArray | None = None


class Numbering(dict[Hashable, int]):
    """Numbers values in the order they come."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


class Column:
    """One column, or several taken together, as numbers of their different values."""

    def __init__(self, take: Callable[[list[str]], Any]) -> None:
        self.take = take
        self.values = Numbering()
        self.numbers = array("i")

    def add(self, rows: Rows) -> None:
        """Number the values of further rows."""
        self.numbers.extend(map(self.values.__getitem__, map(self.take, rows)))


def read_labels(
    path: Path | str, layout: Layout | None = None, progress: Progress | None = None
) -> LabelTable:
    """Read the labels of a CSV file, plain or .gz, in UTF-8 with or without a byte-order mark."""
    path = Path(path)
    try:
        return _read(path, layout or Layout(), progress)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as CSV in UTF-8: {error}") from error


def _read(path: Path, layout: Layout, progress: Progress | None) -> LabelTable:
    with open_parts(path, progress) as (header, parts):
        first = next(parts, [])
        if not first:
            raise DataError(f"{path} names its columns but has no rows")
        layout = complete(layout, header, first, str(path))
        columns = _columns(layout, header)
        marks = array("q")
        for rows in chain([first], parts):
            for column in columns.values():
                column.add(rows)
            if layout.identity:
                marks.extend(hash(row[header.index(layout.identity)].strip()) for row in rows)
    if layout.identity:
        _refuse_doubles(path, layout.identity, np.frombuffer(marks, dtype=np.int64))
    labels = as_labels(columns["labels"].values, _numbers(columns["labels"]), layout, path)
    clients, owners = _named(columns.get("clients"), path, layout.clients)
    patients = columns.get("patient")
    return LabelTable(
        labels, layout, clients, owners, None if patients is None else _numbers(patients)
    )


def _columns(layout: Layout, header: tuple[str, ...]) -> dict[str, Column]:
    """Return what to keep of each row."""
    places = [header.index(name) for name in layout.labels]
    columns = {"labels": Column(itemgetter(*places))}
    for what, name in (("clients", layout.clients), ("patient", layout.patient)):
        if name:
            columns[what] = Column(itemgetter(header.index(name)))
    return columns


def _numbers(column: Column) -> IntArray:
    return np.frombuffer(column.numbers, dtype=np.int32).astype(np.int64)


def _named(
    column: Column | None, path: Path, name: str | None
) -> tuple[tuple[str, ...] | None, IntArray | None]:
    """Return the clients in order of their names, and the client of each row."""
    if column is None or name is None:
        return None, None
    texts = [str(value).strip() for value in column.values]
    if "" in texts:
        line = find_line(path, name, lambda value: not value.strip())
        raise DataError(f"{path}: line {line}, column {name}: there is no client")
    found = list(dict.fromkeys(texts))
    names = [found[place] for place in natural_order(found)]
    place = {text: number for number, text in enumerate(names)}
    return tuple(names), np.array([place[text] for text in texts])[_numbers(column)]


def _refuse_doubles(path: Path, column: str, marks: IntArray) -> None:
    """Refuse a name that two rows have; equal marks only call for a closer look."""
    ordered = np.sort(marks)
    doubled = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not doubled:
        return
    lines: dict[str, int] = {}
    for line, value in each_value(path, column):
        if hash(value) in doubled:
            if value in lines:
                raise DataError(
                    f"{path}: line {line}, column {column}: {value!r} is on line {lines[value]} "
                    "already; name another column by --id, or none by --id ''"
                )
            lines[value] = line
