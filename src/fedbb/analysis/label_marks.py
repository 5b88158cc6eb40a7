"""What the texts in label columns mean; each different text is looked at once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedbb.analysis.label_columns import Layout
from fedbb.analysis.label_file import find_line
from fedbb.analysis.labels import UNKNOWN, Labels, Marks, from_marks, no_patterns
from fedbb.analysis.tally import natural_order
from fedbb.data.label_policy import Policy
from fedbb.errors import DataError
from fedbb.records import IntArray, Task

_CERTAIN = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}
_UNCERTAIN = ("-1", "-1.0")
_REPLACED = {"zeros": 0, "ones": 1, "ignore": UNKNOWN}
MOST_CLASSES = 100_000


def as_labels(
    values: Mapping[Hashable, int], numbers: IntArray, layout: Layout, path: Path
) -> Labels:
    """Return the labels of rows whose values are numbered so."""
    if len(layout.labels) > 1:
        rows = [tuple(map(str.strip, value)) for value in values if isinstance(value, tuple)]
        return _expand(layout.labels, _read_marks(rows, layout, path), numbers)
    texts = [str(value).strip() for value in values]
    if layout.task is Task.MULTILABEL and set(texts) <= {*_CERTAIN, *_UNCERTAIN, ""}:
        marks = _read_marks([(text,) for text in texts], layout, path)
        return _expand(layout.labels, marks, numbers)
    if layout.task is Task.MULTILABEL or _are_joined(texts, layout):
        return _expand(*_read_joined(texts, layout), numbers)
    return _read_classes(texts, numbers, layout, path)


def _are_joined(texts: Sequence[str], layout: Layout) -> bool:
    return layout.task is None and any(layout.separator in text for text in texts)


def _expand(classes: Sequence[str], marks: Marks, numbers: IntArray) -> Labels:
    """Return the labels of all rows from those of the different texts; equal ones become one."""
    if not classes:
        raise DataError("there is no class: every sample's label stands for nothing")
    few = from_marks(classes, marks)
    return Labels(few.task, few.classes, few.pattern[numbers], few.patterns)


def _read_marks(rows: Sequence[tuple[str, ...]], layout: Layout, path: Path) -> Marks:
    meaning = dict(_CERTAIN)
    for texts, policy in ((_UNCERTAIN, layout.uncertain), (("",), layout.blank)):
        if policy is not None and policy != "refuse":
            meaning |= dict.fromkeys(texts, _REPLACED[policy])
    marks = np.empty((len(rows), len(layout.labels)), dtype=np.int8)
    for number, row in enumerate(rows):
        for place, text in enumerate(row):
            if text not in meaning:
                raise _refusal(text, layout.labels[place], path)
        marks[number] = [meaning[text] for text in row]
    return marks


def _refusal(text: str, column: str, path: Path) -> DataError:
    line = find_line(path, column, lambda value: value == text)
    where = f"{path}: line {line}, column {column}"
    if text in _UNCERTAIN:
        return DataError(f"{where}: the label is {text}; {_ways('--uncertain')}")
    if not text:
        return DataError(f"{where}: the label is blank; {_ways('--blank')}")
    return DataError(f"{where}: the label is {text!r}; allowed are 0 and 1, and −1 or blank")


def _ways(option: str) -> str:
    policies: tuple[Policy, ...] = ("zeros", "ones", "ignore")
    return f"say by {option} what it means: {', '.join(policies)}"


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
    classes = _classes(texts)
    if len(classes) > MOST_CLASSES:
        raise DataError(
            f"{path}: column {column} has {len(classes):,} different values, more than the "
            f"{MOST_CLASSES:,} classes allowed; is it the column of the labels?"
        )
    place = {name: number for number, name in enumerate(classes)}
    pattern = np.array([place[text] for text in texts], dtype=np.int32)[numbers]
    return Labels(Task.MULTICLASS, classes, pattern, no_patterns(len(classes)))


def _classes(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the classes in order; whole numbers count from 0, whether all of them occur or not."""
    found = list(dict.fromkeys(texts))
    names = [found[place] for place in natural_order(found)]
    if all(name.isascii() and name.isdigit() and name == str(int(name)) for name in names):
        highest = int(names[-1])
        if highest < max(2 * len(names), 1000):
            return tuple(str(number) for number in range(highest + 1))
    return tuple(names)
