"""A CSV file as rows of text, many at a time, and as lines that a message can name."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from fedbb.errors import DataError

PART = 10_000
"""Rows read at a time: few enough for any memory, many enough to be quick."""

Progress = Callable[[int, int], None]
Rows = list[list[str]]


@contextmanager
def open_parts(
    path: Path, progress: Progress | None
) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[str]]]]]:
    """Yield the header and the rows, many at a time."""
    with _open_text(path, progress) as (file, advance):
        reader = csv.reader(file, strict=True)
        try:
            header = tuple(name.strip() for name in next(reader, []))
        except csv.Error as error:
            raise DataError(f"{path}: line {reader.line_num}: {error}") from error
        _check_header(header, path)

        def parts() -> Iterator[list[list[str]]]:
            while rows := _next_part(reader, path):
                whole = [row for row in rows if row]
                if any(len(row) != len(header) for row in whole):
                    raise _wrong_width(path, len(header))
                advance()
                yield whole

        yield header, parts()


def find_line(path: Path, column: str, is_meant: Callable[[str], bool]) -> int:
    """Return the first line on which a column's value is meant; the file is read anew."""
    return next((line for line, value in each_value(path, column) if is_meant(value)), 0)


def each_value(path: Path, column: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the value of each row."""
    with _open_text(path, None) as (file, _):
        reader = csv.reader(file, strict=True)
        place = [name.strip() for name in next(reader)].index(column)
        for row in reader:
            if row:
                yield reader.line_num, row[place].strip()


def _next_part(reader: Any, path: Path) -> list[list[str]]:
    try:
        return list(islice(reader, PART))
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: {error}") from error


def _check_header(header: tuple[str, ...], path: Path) -> None:
    if not header:
        raise DataError(f"{path} is empty; its first line must name the columns")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise DataError(f"{path}: line 1 names the column {name!r} twice")
        seen.add(name)


def _wrong_width(path: Path, width: int) -> DataError:
    with _open_text(path, None) as (file, _):
        reader = csv.reader(file, strict=True)
        for row in reader:
            if row and len(row) != width:
                where = f"{path}: line {reader.line_num}"
                return DataError(f"{where} has {len(row)} values for {width} columns")
    return DataError(f"{path} changed while it was read")


@contextmanager
def _open_text(
    path: Path, progress: Progress | None
) -> Iterator[tuple[TextIO, Callable[[], None]]]:
    """Yield the text of a file, and a function that tells how far it has been read."""
    size = path.stat().st_size
    with path.open("rb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw

        def advance() -> None:
            if progress is not None:
                progress(raw.tell(), size)

        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as file:
            yield file, advance
