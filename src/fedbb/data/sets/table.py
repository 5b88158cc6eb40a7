"""A user's own images: a CSV file of labels beside a folder of image files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbb.data.csv_table import CsvTable, read_class_column, read_csv, read_label_columns
from fedbb.data.dataset import Dataset, Examples, assemble
from fedbb.data.images.archive import Folder
from fedbb.data.images.decode import ImageFormat, ImageSource, Request, Size, Unreadable, as_size
from fedbb.data.images.loader import load_images
from fedbb.data.label_policy import Policy
from fedbb.data.source import Source, read_options
from fedbb.data.splits import split_by_share, split_by_values
from fedbb.errors import DataError
from fedbb.records import IntArray, Task


@dataclass(frozen=True)
class TableOptions:
    """How to read the CSV file and its images.

    Attributes:
        image_column: column of the image files' names.
        images: folder of the files; by default that of the CSV file.
        label_columns: columns of 0 and 1, for multi-label data.
        class_column: column of class names, for multi-class data.
        classes: names of the classes in order; by default all that occur.
        columns: further columns to keep, for partitions.
        split_column: column with train or test for each row.
        leave_out: values of `split_column` whose rows are not used.
        test_share: share of test rows where there is no `split_column`.
        group: column of which no value is in both parts, such as the patient.
        size: height and width, or one number for both; without it all images must agree.
        channels: 1 for grey, 3 for color.
        unreadable: whether unreadable images are refused or skipped.
        uncertain: what −1 in a label column means.
        blank: what a blank in a label column means.
    """

    image_column: str = "image"
    images: Path | None = None
    label_columns: tuple[str, ...] = ()
    class_column: str | None = None
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    split_column: str | None = None
    leave_out: tuple[str, ...] = ()
    test_share: float = 0.2
    group: str | None = None
    size: Size = None
    channels: Literal[1, 3] = 3
    unreadable: Unreadable = "refuse"
    uncertain: Policy = "refuse"
    blank: Policy = "refuse"


def load(source: Source) -> Dataset:
    """Return the data set of a CSV file and its images."""
    options = read_options(TableOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the CSV file to read")
    table = read_csv(source.path)
    return load_rows(source, table, options, request_images(table, options))


def load_rows(
    source: Source,
    table: CsvTable,
    options: TableOptions,
    request: Request,
    more: Callable[[list[int]], Mapping[str, npt.NDArray[np.str_]]] | None = None,
    header: Sequence[str] = (),
) -> Dataset:
    """Return the data set of a table and the images of a request.

    Args:
        source: the data set.
        table: the table.
        options: what its columns mean.
        request: the image of each row.
        more: returns further columns, those of the files, for the rows whose image was read.
        header: names of these columns; the table may have columns of these names instead.
    """
    task, classes, labels = _labels(table, options)
    named = [n for n in _column_names(options) if n in table.header or n not in header]
    columns = {name: np.array(table.column(name)) for name in named}
    decoded = load_images(request, source)
    rows = decoded.rows
    kept = {name: values[rows] for name, values in columns.items()}
    if more is not None:
        kept = {**more(rows.tolist()), **kept}
    examples = Examples(decoded.images, labels[rows], kept)
    parts = _split(examples, rows, table, options, source.seed)
    dataset = assemble(table.path.stem, task, classes, *parts)
    return replace(dataset, notes=decoded.notes())


def _labels(
    table: CsvTable, options: TableOptions
) -> tuple[Task, tuple[str, ...], npt.NDArray[Any]]:
    if bool(options.label_columns) == (options.class_column is not None):
        raise DataError(
            f"{table.path}: say where the labels are, by either label_columns or class_column"
        )
    if options.class_column is not None:
        classes, labels = read_class_column(table, options.class_column, options.classes)
        return Task.MULTICLASS, classes, labels
    marks = read_label_columns(table, options.label_columns, options.uncertain, options.blank)
    return Task.MULTILABEL, options.label_columns, marks


def _column_names(options: TableOptions) -> list[str]:
    names = options.columns if options.group is None else (*options.columns, options.group)
    return list(dict.fromkeys(names))


def _image_format(options: TableOptions) -> ImageFormat:
    return ImageFormat(options.channels, as_size(options.size, "table"))


def _split(
    examples: Examples, rows: IntArray, table: CsvTable, options: TableOptions, seed: int
) -> tuple[Examples, Examples, Examples | None]:
    """Return (train, test, validation) of the examples of these rows of the table."""
    column = options.split_column
    if column is None:
        return *split_by_share(examples, options.test_share, options.group, seed), None
    values = table.column(column)
    return split_by_values(
        examples,
        [values[row] for row in rows],
        options.leave_out,
        lambda place: table.place(int(rows[place]), column),
    )


def request_images(table: CsvTable, options: TableOptions) -> Request:
    """Return the request for the files that the image column names."""
    column = options.image_column
    archive = Folder(options.images or table.path.parent)
    images = ImageSource(archive, _image_format(options), options.unreadable)
    names = tuple(read_file_names(table, column, archive.path))
    return Request(images, names, lambda row: table.place(row, column))


def read_file_names(table: CsvTable, column: str, folder: Path) -> list[str]:
    """Return the file names; one that is blank, repeated or outside of the folder is refused."""
    names = table.column(column)
    first: dict[str, int] = {}
    whole = os.path.abspath(folder)  # noqa: PTH100 - links within the folder may lead anywhere
    for row, name in enumerate(names):
        if not name:
            raise DataError(f"{table.place(row, column)}: there is no file name")
        if name in first:
            raise DataError(
                f"{table.place(row, column)}: {name} is on line {table.line(first[name])} too"
            )
        if not PurePath(os.path.normpath(os.path.join(whole, name))).is_relative_to(whole):  # noqa: PTH118
            raise DataError(f"{table.place(row, column)}: {name} is outside of the folder {folder}")
        first[name] = row
    return names
