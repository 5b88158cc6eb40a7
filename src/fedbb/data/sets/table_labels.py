"""Labels of a CSV file: columns of 0 and 1, or one column of class names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb.data.csv_table import Sheet
from fedbb.data.label_policy import REPLACEMENT, Policy
from fedbb.errors import DataError
from fedbb.records import IntArray

_CERTAIN = {"0": 0.0, "0.0": 0.0, "1": 1.0, "1.0": 1.0}
_UNCERTAIN = {"-1", "-1.0"}


def read_class_column(
    sheet: Sheet, column: str, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], IntArray]:
    """Return the classes, by default all that occur in alphabetical order, and labels (N,)."""
    values = sheet.column(column)
    if "" in values:
        raise DataError(f"{sheet.place(values.index(''), column)}: there is no class name")
    known = classes or tuple(sorted(set(values)))
    number = {name: place for place, name in enumerate(known)}
    for row, value in enumerate(values):
        if value not in number:
            raise DataError(
                f"{sheet.place(row, column)}: {value!r} is no class" + nearest(value, known)
            )
    return known, np.array([number[value] for value in values], dtype=np.int64)


def read_label_columns(
    sheet: Sheet, columns: tuple[str, ...], uncertain: Policy, blank: Policy
) -> npt.NDArray[np.float32]:
    """Return labels (N, C) of 0, 1 and, where a policy leaves a label unknown, NaN."""
    meaning = dict(_CERTAIN)
    if uncertain != "refuse":
        meaning |= dict.fromkeys(_UNCERTAIN, REPLACEMENT[uncertain])
    if blank != "refuse":
        meaning[""] = REPLACEMENT[blank]
    labels = np.empty((len(sheet.rows), len(columns)), dtype=np.float32)
    for place, column in enumerate(columns):
        values = sheet.column(column)
        for row, value in enumerate(values):
            if value not in meaning:
                raise DataError(f"{sheet.place(row, column)}: {_complaint(value)}")
        labels[:, place] = [meaning[value] for value in values]
    return labels


def _complaint(value: str) -> str:
    if value in _UNCERTAIN:
        return f"the label is {value}; set the option uncertain to zeros, ones or ignore"
    if not value:
        return "the label is blank; set the option blank to zeros, ones or ignore"
    return f"the label is {value!r}; allowed are 0 and 1, and −1 or blank by option"
