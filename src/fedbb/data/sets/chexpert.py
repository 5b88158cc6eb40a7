"""CheXpert: chest films with 14 observations, of which ten are used, some of them uncertain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from fedbb.data.csv_table import CsvTable, find_line, read_csv, read_label_columns, refuse_doubles
from fedbb.data.dataset import Dataset
from fedbb.data.images.archive import Folder
from fedbb.data.images.decode import ImageFormat, ImageSource, Unreadable
from fedbb.data.images.loader import NamedExamples, NamedSplit, cap, load_split, name_examples
from fedbb.data.label_policy import Policy
from fedbb.data.source import Source, read_options
from fedbb.data.splits import refuse_shared_patients, split_by_share
from fedbb.errors import DataError
from fedbb.records import IntArray, Task

CLASSES = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Fracture",
)
"""The paper leaves out No Finding, Pleural Effusion, Pleural Other and Support Devices."""

_PATH, _VIEW = "Path", "Frontal/Lateral"


@dataclass(frozen=True)
class CheXpertOptions:
    """How to read the table and its films.

    Attributes:
        uncertain: what −1 means.
        blank: what an observation that the report does not mention means.
        view: frontal films, lateral films, or all.
        test: "share" for a share of the patients of train.csv, "valid" for the films of valid.csv.
        test_share: share of the test patients.
        size: height and width.
        channels: 1 for grey, 3 for color.
        n_train: largest number of training films.
        n_test: largest number of test films.
        unreadable: whether unreadable films are refused or skipped.
    """

    uncertain: Policy = "zeros"
    blank: Policy = "zeros"
    view: Literal["frontal", "lateral", "all"] = "all"
    test: Literal["share", "valid"] = "share"
    test_share: float = 0.2
    size: int = 150
    channels: Literal[1, 3] = 1
    n_train: int | None = None
    n_test: int | None = None
    unreadable: Unreadable = "refuse"


def load(source: Source) -> Dataset:
    """Return the data set of the folder that holds train.csv; `patient` and `view` are kept."""
    options = read_options(CheXpertOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: train.csv, or the folder it is in")
    if options.size < 1:
        raise DataError(f"{source.name} data: size is {options.size}; it must be at least 1")
    folder = source.path if source.path.is_dir() else source.path.parent
    table = folder / "train.csv" if source.path.is_dir() else source.path
    train, test = _split(read_films(table, options), folder, options, source)
    train = cap(train, options.n_train, source, "n_train")
    test = cap(test, options.n_test, source, "n_test")
    wanted = ImageFormat(options.channels, (options.size, options.size))
    images = ImageSource(Folder(folder), wanted, options.unreadable)

    def place(name: str) -> str:
        """Return the line that names a film; valid.csv has those that the first table lacks."""
        for file in (table, folder / "valid.csv"):
            if line := find_line(file, _PATH, lambda path: path.endswith(f"/{name}")):
                return f"{file}: line {line}, column {_PATH}"
        return str(table)

    split = NamedSplit(Task.MULTILABEL, CLASSES, train, test, place=place)
    return load_split(split, images, source)


def _split(
    films: NamedExamples, folder: Path, options: CheXpertOptions, source: Source
) -> tuple[NamedExamples, NamedExamples]:
    if options.test == "share":
        return split_by_share(films, options.test_share, "patient", source.seed)
    test = read_films(folder / "valid.csv", options)
    refuse_shared_patients(films, test, source.name)
    return films, test


def read_films(path: Path, options: CheXpertOptions) -> NamedExamples:
    """Return the films of a table that show the wanted view, by file name."""
    table = read_csv(path)
    labels = read_label_columns(table, CLASSES, options.uncertain, options.blank)
    views = [view.lower() for view in table.column(_VIEW)]
    rows = _rows(views, options.view, table)
    paths = [_locate(path, row, table) for row, path in enumerate(table.column(_PATH))]
    refuse_doubles(table, _PATH)
    columns = {
        "patient": [_patient(paths[row], row, table) for row in rows],
        "view": [views[row] for row in rows],
    }
    return name_examples([paths[row] for row in rows], labels[rows], columns)


def _rows(views: list[str], wanted: str, table: CsvTable) -> IntArray:
    for row, view in enumerate(views):
        if view not in ("frontal", "lateral"):
            raise DataError(
                f"{table.place(row, _VIEW)}: the view is {view!r}; allowed: Frontal and Lateral"
            )
    rows = [row for row, view in enumerate(views) if wanted in (view, "all")]
    if not rows:
        raise DataError(f"{table.path} has no {wanted} films")
    return np.array(rows, dtype=np.int64)


def _locate(path: str, row: int, table: CsvTable) -> str:
    """Return a path within the folder; the table begins each with the folder's original name."""
    parts = PurePosixPath(path).parts
    if len(parts) < 3 or parts[0] == "/" or ".." in parts:
        raise DataError(
            f"{table.place(row, _PATH)}: the path is {path!r}; expected "
            "CheXpert-v1.0-small/train/patient…/study…/view….jpg"
        )
    return "/".join(parts[1:])


def _patient(path: str, row: int, table: CsvTable) -> str:
    """Return the folder of a path that names the patient."""
    found = [part for part in PurePosixPath(path).parts if part.startswith("patient")]
    if not found:
        raise DataError(f"{table.place(row, _PATH)}: {path!r} names no patient")
    return found[0].removeprefix("patient")
