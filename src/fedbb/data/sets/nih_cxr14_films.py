"""The films of NIH ChestX-ray14 as they are published: a table and folders of PNG files."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb.data.csv_table import Sheet, read_sheet
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.images.archive import Folder
from fedbb.data.images.decode import Form
from fedbb.data.images.loader import Unreadable
from fedbb.data.images.named_images import Parts, Reading, name_examples, read_parts
from fedbb.data.sets.nih_cxr14_options import CLASSES, NihOptions
from fedbb.data.sets.nih_cxr14_split import split_films
from fedbb.data.source import Source
from fedbb.errors import DataError
from fedbb.records import Task

SIZE = 150
"""Height and width in the paper; the files have 1,024."""

_NAME, _FINDINGS, _PATIENT, _NONE = "Image Index", "Finding Labels", "Patient ID", "No Finding"


def load_films(source: Source, path: Path, options: NihOptions) -> Dataset:
    """Return the data set of a table, given by itself or by its folder, and of its films."""
    sheet = read_sheet(_table(path))
    folder = Folder(options.images or sheet.path.parent)
    films, names, missing = _find(sheet, folder, options.unreadable)
    train, test, notes = split_films(films, names, sheet.path.parent, options, source)
    size = options.size or SIZE
    reading = Reading(folder, Form(options.channels, (size, size)), options.unreadable)
    parts = Parts(Task.MULTILABEL, CLASSES, train, test, missing + notes)
    return read_parts(parts, reading, source)


def _table(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("Data_Entry_2017*.csv"))
    if not found:
        raise DataError(f"{path} holds no Data_Entry_2017.csv")
    return found[0]


def read_findings(sheet: Sheet) -> npt.NDArray[np.float32]:
    """Return labels (N, 14) from findings joined by |; "No Finding" is a row of zeros."""
    numbers = {name: number for number, name in enumerate(CLASSES)}
    labels = np.zeros((len(sheet.rows), len(CLASSES)), dtype=np.float32)
    for row, findings in enumerate(sheet.column(_FINDINGS)):
        for finding in findings.split("|"):
            if finding in numbers:
                labels[row, numbers[finding]] = 1
            elif finding != _NONE or findings != _NONE:
                raise DataError(
                    f"{sheet.place(row, _FINDINGS)}: {finding!r} in {findings!r} is no finding"
                    + nearest(finding, CLASSES)
                )
    return labels


def _find(
    sheet: Sheet, folder: Folder, policy: Unreadable
) -> tuple[Examples, list[str], tuple[str, ...]]:
    """Return the films whose files are there, their names, and a note on the others."""
    labels, names, patients = read_findings(sheet), sheet.column(_NAME), sheet.column(_PATIENT)
    files = {PurePosixPath(path).name: path for path in folder.names()}
    rows = [row for row, name in enumerate(names) if name in files]
    missing = len(names) - len(rows)
    if missing and (policy == "refuse" or not rows):
        first = next(row for row, name in enumerate(names) if name not in files)
        raise DataError(
            f"{sheet.place(first, _NAME)}: {names[first]} is nowhere in {folder.path} ({missing} "
            f"of {len(names)} films are not); set the option images to their folder, or the option "
            "unreadable to skip if you have but a part of them"
        )
    films = name_examples(
        [files[names[row]] for row in rows],
        labels[rows],
        {"patient": [patients[row] for row in rows]},
    )
    note = f"{missing} of {len(names)} films of the table are not in {folder.path}, so left out"
    return films, [names[row] for row in rows], (note,) if missing else ()
