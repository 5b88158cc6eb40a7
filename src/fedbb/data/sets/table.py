"""A user's own images: a CSV file of labels beside a folder of image files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbb.data.assemble import assemble
from fedbb.data.csv_table import Sheet, read_sheet
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.images.decode import Form
from fedbb.data.images.loader import Unreadable
from fedbb.data.label_policy import Policy
from fedbb.data.options import read_options
from fedbb.data.sets.table_images import read_images, request_images
from fedbb.data.sets.table_labels import read_class_column, read_label_columns
from fedbb.data.source import Source
from fedbb.data.splitting import split_by_share, split_by_values
from fedbb.errors import DataError
from fedbb.records import IntArray, Task


@dataclass(frozen=True)
class TableOptions:
    """How to read the CSV file and its images.

    Labels are either `label_columns` of 0 and 1 (multi-label), where −1 is `uncertain` and an empty
    place is `blank`; or one `class_column` of names. `images` is the folder of the files, by
    default that of the CSV. Test rows are those that `split_column` calls test (what `leave_out`
    names is used nowhere), else a share, drawn so that no value of the column `group` is on both
    sides. `columns` are kept for partitions. `size` is height and width, or one number for both;
    without it all images must agree.
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
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] = 3
    unreadable: Unreadable = "refuse"
    uncertain: Policy = "refuse"
    blank: Policy = "refuse"


def load(source: Source) -> Dataset:
    """Return the data set of a CSV file and its images."""
    options = read_options(TableOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the CSV file to read")
    sheet = read_sheet(source.path)
    task, classes, labels = _labels(sheet, options)
    columns = {name: np.array(sheet.column(name)) for name in _column_names(options)}
    folder = options.images or source.path.parent
    request = request_images(
        sheet, options.image_column, folder, _form(options), options.unreadable
    )
    gallery = read_images(request, source)
    rows = gallery.rows
    kept = {name: values[rows] for name, values in columns.items()}
    examples = Examples(gallery.images, labels[rows], kept)
    train, test = _split(examples, rows, sheet, options, source.seed)
    dataset = assemble(source.path.stem, task, classes, train, test)
    return replace(dataset, notes=gallery.notes())


def _labels(sheet: Sheet, options: TableOptions) -> tuple[Task, tuple[str, ...], npt.NDArray[Any]]:
    if bool(options.label_columns) == (options.class_column is not None):
        raise DataError(
            f"{sheet.path}: say where the labels are, by either label_columns or class_column"
        )
    if options.class_column is not None:
        classes, labels = read_class_column(sheet, options.class_column, options.classes)
        return Task.MULTICLASS, classes, labels
    marks = read_label_columns(sheet, options.label_columns, options.uncertain, options.blank)
    return Task.MULTILABEL, options.label_columns, marks


def _column_names(options: TableOptions) -> list[str]:
    names = options.columns if options.group is None else (*options.columns, options.group)
    return list(dict.fromkeys(names))


def _form(options: TableOptions) -> Form:
    size = options.size
    if isinstance(size, int):
        size = (size, size)
    if size is not None and min(size) < 1:
        raise DataError(f"table data: size is {options.size}; height and width are at least 1")
    return Form(options.channels, size)


def _split(
    examples: Examples, rows: IntArray, sheet: Sheet, options: TableOptions, seed: int
) -> tuple[Examples, Examples]:
    """Return (train, test) of the examples that stand in these rows of the sheet."""
    column = options.split_column
    if column is None:
        return split_by_share(examples, options.test_share, options.group, seed)
    values = sheet.column(column)
    return split_by_values(
        examples,
        [values[row] for row in rows],
        options.leave_out,
        lambda place: sheet.place(int(rows[place]), column),
    )
