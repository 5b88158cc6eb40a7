"""Labels of CSV and .npz files.

A CSV file is read part by part: what is kept is a number or two for each row, and each different
text of a label column is interpreted once.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from fedbb._util.names import nearest
from fedbb.analysis.label_statistics import (
    UNKNOWN,
    Labels,
    Marks,
    from_array,
    from_marks,
    name_clients,
    natural_order,
    no_patterns,
)
from fedbb.data.array_files import read_npz
from fedbb.data.csv_table import Rows, each_value, find_line, open_csv
from fedbb.data.download import Progress
from fedbb.data.label_policy import CERTAIN, UNCERTAIN, Policy, explain_label, label_values
from fedbb.data.sets.chexpert import CLASSES
from fedbb.data.sets.npz import read_class_names
from fedbb.errors import DataError
from fedbb.records import MOST_CLASSES, IntArray, Task

CHEXPERT = "Enlarged Cardiomediastinum"
"""A column that only CheXpert's table has; its blanks and −1 follow the paper's policy."""

_CLASS_NAMES = ("finding labels", "label", "labels", "class", "target")
_IDENTITIES = ("image index", "path", "image", "image_id", "filename")
_PATIENTS = ("patient id", "patient_id", "patient", "subject_id")
_MARKS = {*CERTAIN, *UNCERTAIN}
NEARLY = 0.9


@dataclass(frozen=True)
class Layout:
    """The columns of a CSV file and how to read them; what is None or empty is guessed.

    Attributes:
        labels: columns of 0 and 1, or a single column of class names.
        clients: column of the clients.
        patient: column of the patients; an empty text means there is none.
        identity: column that names each row; an empty text means there is none.
        task: multi-class or multi-label, where a single column leaves it open.
        uncertain: what −1 in a 0/1 column means; by default "zeros" for CheXpert's table and
            "refuse" for all others.
        blank: what a blank in a 0/1 column means; the default is that of `uncertain`.
        separator: text between several class names in one value.
        nothing: class names that stand for no class.
    """

    labels: tuple[str, ...] = ()
    clients: str | None = None
    patient: str | None = None
    identity: str | None = None
    task: Task | None = None
    uncertain: Policy | None = None
    blank: Policy | None = None
    separator: str = "|"
    nothing: tuple[str, ...] = ("No Finding",)


def complete(
    layout: Layout, header: tuple[str, ...], rows: Sequence[Sequence[str]], where: str
) -> Layout:
    """Return the layout with every column known, from a header and the first rows below it."""
    asked = [layout.clients, layout.patient, layout.identity, *layout.labels]
    for name in asked:
        if name and name not in header:
            raise DataError(f"{where}: no column {name!r}" + nearest(name, header))
    policy: Policy = "zeros" if CHEXPERT in header else "refuse"
    layout = replace(
        layout,
        patient=_first(header, _PATIENTS) if layout.patient is None else layout.patient or None,
        identity=_first(header, _IDENTITIES) if layout.identity is None else layout.identity,
        uncertain=layout.uncertain or policy,
        blank=layout.blank or policy,
    )
    return layout if layout.labels else replace(layout, labels=_guess(layout, header, rows, where))


def _first(header: Sequence[str], wanted: Sequence[str]) -> str | None:
    by_name = {name.lower(): name for name in reversed(header)}
    return next((by_name[name] for name in wanted if name in by_name), None)


def _guess(
    layout: Layout, header: tuple[str, ...], rows: Sequence[Sequence[str]], where: str
) -> tuple[str, ...]:
    if CHEXPERT in header:
        return tuple(name for name in CLASSES if name in header)
    named = _first(header, _CLASS_NAMES)
    if named is not None:
        return (named,)
    taken = {layout.clients, layout.patient, layout.identity}
    marks = tuple(
        name
        for place, name in enumerate(header)
        if name not in taken and _is_marked([row[place].strip() for row in rows])
    )
    if not marks:
        raise DataError(
            f"{where}: no column of 0 and 1, and none called label or class; name by --label which "
            f"of these hold the labels: {', '.join(header)}"
        )
    return marks


def _is_marked(values: Sequence[str]) -> bool:
    """Whether values look like labels: nearly all are marks, so that a wrong one is found later."""
    written = [value for value in values if value]
    return bool(written) and sum(value in _MARKS for value in written) >= NEARLY * len(written)


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Labels of a file, with the client and the patient of each row where it names them."""

    labels: Labels
    layout: Layout
    clients: tuple[str, ...] | None = None
    owners: IntArray | None = None
    patients: IntArray | None = None


def read_label_arrays(path: Path | str, layout: Layout | None = None) -> LabelTable:
    """Read `labels` of an .npz file, `classes` if there, and the arrays that the layout names.

    No other array of the file is read.
    """
    path, layout = Path(path), layout or Layout()
    label = layout.labels[0] if layout.labels else "labels"
    wanted = [name for name in (label, layout.clients, layout.patient) if name]
    arrays = read_npz(path, wanted, optional=("classes",))
    classes = read_class_names(arrays["classes"], path) if "classes" in arrays else None
    try:
        labels = from_array(arrays[label], layout.task, classes)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    for name in wanted[1:]:
        if arrays[name].shape != (len(labels),):
            raise DataError(
                f"{path}: {name} has shape {arrays[name].shape}; {len(labels)} labels need as many"
            )
    names, owners = name_clients(arrays[layout.clients]) if layout.clients else (None, None)
    patients = name_clients(arrays[layout.patient])[1] if layout.patient else None
    return LabelTable(labels, layout, names, owners, patients)


def read_label_table(
    path: Path | str, layout: Layout | None = None, progress: Progress | None = None
) -> LabelTable:
    """Read the labels of a CSV file, plain or .gz; DataError names the line of what is wrong."""
    path, layout = Path(path), layout or Layout()
    with open_csv(path, progress) as (header, parts):
        first = next(parts, [])
        if not first:
            raise DataError(f"{path} names its columns but has no rows")
        layout = complete(layout, header, first, str(path))
        columns = _columns(layout, header)
        hashes = array("q")
        for rows in chain([first], parts):
            for column in columns.values():
                column.add(rows)
            if layout.identity:
                hashes.extend(hash(row[header.index(layout.identity)].strip()) for row in rows)
    if layout.identity:
        _refuse_doubles(path, layout.identity, np.frombuffer(hashes, dtype=np.int64))
    labels = _read_values(columns["labels"].values, columns["labels"].as_array(), layout, path)
    clients, owners = _read_clients(columns.get("clients"), path, layout.clients)
    patients = columns["patient"].as_array() if "patient" in columns else None
    return LabelTable(labels, layout, clients, owners, patients)


class _Numbering(dict[Hashable, int]):
    """Numbers values in the order they come."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


class _Column:
    """One column, or several taken together, as numbers of their different values."""

    def __init__(self, take: Callable[[list[str]], Any]) -> None:
        self.take = take
        self.values = _Numbering()
        self.numbers = array("i")

    def add(self, rows: Rows) -> None:
        """Number the values of further rows."""
        self.numbers.extend(map(self.values.__getitem__, map(self.take, rows)))

    def as_array(self) -> IntArray:
        """Return the number of each row's value."""
        return np.frombuffer(self.numbers, dtype=np.int32).astype(np.int64)


def _columns(layout: Layout, header: tuple[str, ...]) -> dict[str, _Column]:
    """Return what to keep of each row."""
    places = [header.index(name) for name in layout.labels]
    columns = {"labels": _Column(itemgetter(*places))}
    for what, name in (("clients", layout.clients), ("patient", layout.patient)):
        if name:
            columns[what] = _Column(itemgetter(header.index(name)))
    return columns


def _read_clients(
    column: _Column | None, path: Path, name: str | None
) -> tuple[tuple[str, ...] | None, IntArray | None]:
    """Return the clients in order of their names, and the client of each row."""
    if column is None or name is None:
        return None, None
    texts = [str(value).strip() for value in column.values]
    if "" in texts:
        line = find_line(path, name, lambda value: not value)
        raise DataError(f"{path}: line {line}, column {name}: there is no client")
    found = list(dict.fromkeys(texts))
    names = [found[place] for place in natural_order(found)]
    place = {text: number for number, text in enumerate(names)}
    return tuple(names), np.array([place[text] for text in texts])[column.as_array()]


def _refuse_doubles(path: Path, column: str, hashes: IntArray) -> None:
    """Refuse a name that two rows have; equal hashes only call for a closer look."""
    ordered = np.sort(hashes)
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


def _read_values(
    values: Mapping[Hashable, int], numbers: IntArray, layout: Layout, path: Path
) -> Labels:
    """Return the labels of all rows from their different values and the number of each row's."""
    if len(layout.labels) > 1:
        rows = [tuple(map(str.strip, value)) for value in values if isinstance(value, tuple)]
        return _expand(layout.labels, _read_marks(rows, layout, path), numbers)
    texts = [str(value).strip() for value in values]
    if layout.task is Task.MULTILABEL and set(texts) <= {*CERTAIN, *UNCERTAIN, ""}:
        marks = _read_marks([(text,) for text in texts], layout, path)
        return _expand(layout.labels, marks, numbers)
    joined = layout.task is None and any(layout.separator in text for text in texts)
    if layout.task is Task.MULTILABEL or joined:
        return _expand(*_read_joined(texts, layout), numbers)
    return _read_classes(texts, numbers, layout, path)


def _expand(classes: Sequence[str], marks: Marks, numbers: IntArray) -> Labels:
    """Return the labels of all rows from those of the different values; equal ones become one."""
    if not classes:
        raise DataError("there is no class: no sample's label names one")
    few = from_marks(classes, marks)
    return Labels(few.task, few.classes, few.pattern[numbers], few.patterns)


def _read_marks(rows: Sequence[tuple[str, ...]], layout: Layout, path: Path) -> Marks:
    values = label_values(layout.uncertain or "refuse", layout.blank or "refuse")
    meaning = {text: UNKNOWN if math.isnan(value) else int(value) for text, value in values.items()}
    marks = np.empty((len(rows), len(layout.labels)), dtype=np.int8)
    for number, row in enumerate(rows):
        for place, text in enumerate(row):
            if text not in meaning:
                raise _refusal(text, layout.labels[place], path)
        marks[number] = [meaning[text] for text in row]
    return marks


def _refusal(text: str, column: str, path: Path) -> DataError:
    line = find_line(path, column, lambda value: value == text)
    return DataError(f"{path}: line {line}, column {column}: {explain_label(text, option='--')}")


def _read_joined(texts: Sequence[str], layout: Layout) -> tuple[tuple[str, ...], Marks]:
    parts = [{part.strip() for part in text.split(layout.separator)} for text in texts]
    nothing = {"", *layout.nothing}
    classes = tuple(sorted(set[str]().union(*parts) - nothing))
    place = {name: number for number, name in enumerate(classes)}
    marks = np.zeros((len(texts), len(classes)), dtype=np.int8)
    for number, names in enumerate(parts):
        marks[number, [place[name] for name in names - nothing]] = 1
    return classes, marks


def _read_classes(texts: Sequence[str], numbers: IntArray, layout: Layout, path: Path) -> Labels:
    column = layout.labels[0]
    if "" in texts:
        line = find_line(path, column, lambda value: not value)
        raise DataError(f"{path}: line {line}, column {column}: there is no class")
    classes = _order_classes(texts)
    if len(classes) > MOST_CLASSES:
        raise DataError(
            f"{path}: column {column} has {len(classes):,} different values, more than the "
            f"{MOST_CLASSES:,} classes allowed; is it the column of the labels?"
        )
    place = {name: number for number, name in enumerate(classes)}
    pattern = np.array([place[text] for text in texts], dtype=np.int32)[numbers]
    return Labels(Task.MULTICLASS, classes, pattern, no_patterns(len(classes)))


def _order_classes(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the classes in order; whole numbers count from 0, whether all of them occur or not."""
    found = list(dict.fromkeys(texts))
    names = [found[place] for place in natural_order(found)]
    if all(re.fullmatch(r"0|[1-9][0-9]{0,8}", name) for name in names):
        highest = int(names[-1])
        if highest < max(2 * len(names), 1000):
            return tuple(str(number) for number in range(highest + 1))
    return tuple(names)
