"""NIH ChestX-ray14: chest films with up to 14 findings each, as published or as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbb._util.files import unreadable_data
from fedbb._util.names import nearest
from fedbb.data.array_files import read_npz, read_texts
from fedbb.data.csv_table import CsvTable, find_line, read_csv, refuse_doubles
from fedbb.data.dataset import Dataset, Examples, assemble
from fedbb.data.images.archive import Folder
from fedbb.data.images.decode import ImageFormat, ImageSource, Unreadable, resize
from fedbb.data.images.loader import NamedExamples, NamedSplit, cap, load_split, name_examples
from fedbb.data.source import Source, read_options
from fedbb.data.splits import Rows, refuse_shared_patients, split_by_share
from fedbb.data.transforms import as_images
from fedbb.errors import DataError
from fedbb.records import Task

CLASSES = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
SIZE = 150
"""Height and width in the paper; the files have 1,024."""
LISTS = {"train": "train_val_list.txt", "test": "test_list.txt"}
"""The published lists of files, one name a line."""

_ARRAYS = ("images", "labels", "patient", "names", "classes")
_NAME, _FINDINGS, _PATIENT, _NONE = "Image Index", "Finding Labels", "Patient ID", "No Finding"


@dataclass(frozen=True)
class NihOptions:
    """How to read the films, from the published files or from an .npz file.

    Attributes:
        images: folder of the files, with or without sub-folders; by default that of the table.
        split: CSV file with the columns image and split (train or test). Without it the published
            lists decide if they are beside the table, else a share of the patients is for testing.
        leave_out: values of the column split whose films are not used.
        test_share: share of the test patients.
        size: height and width; by default 150 for files and unchanged for arrays.
        channels: 1 for grey, 3 for color.
        n_train: largest number of training films.
        n_test: largest number of test films.
        unreadable: whether unreadable or missing films are refused or skipped.
    """

    images: Path | None = None
    split: Path | None = None
    leave_out: tuple[str, ...] = ("val",)
    test_share: float = 0.2
    size: int | None = None
    channels: Literal[1, 3] = 1
    n_train: int | None = None
    n_test: int | None = None
    unreadable: Unreadable = "refuse"


def load(source: Source) -> Dataset:
    """Return the data set; a film without a finding is a row of zeros, and `patient` is kept."""
    options = read_options(NihOptions, source)
    if source.path is None:
        raise DataError(
            f"{source.name} data needs a path: Data_Entry_2017.csv, its folder, or an .npz file"
        )
    if options.size is not None and options.size < 1:
        raise DataError(f"{source.name} data: size is {options.size}; it must be at least 1")
    load_part = load_arrays if source.path.suffix == ".npz" else load_films
    return load_part(source, source.path, options)


def load_arrays(source: Source, path: Path, options: NihOptions) -> Dataset:
    """Return the data set of the arrays images, labels, patient, names and classes."""
    arrays = read_npz(path, _ARRAYS, optional=())
    for name in _ARRAYS:
        if name != "classes" and len(arrays[name]) != len(arrays["images"]):
            raise DataError(
                f"{path}: {len(arrays['images'])} images but {len(arrays[name])} {name}"
            )
    labels = _in_order(
        arrays["labels"], read_texts(arrays["classes"], None, f"{path}: classes"), path
    )
    images = as_images(arrays["images"], "auto", f"{path}: images")
    patients = read_texts(arrays["patient"], len(images), f"{path}: patient")
    films = Examples(images, labels, {"patient": np.array(patients)})
    names = read_texts(arrays["names"], len(images), f"{path}: names")
    _refuse_repeated(names, path)
    train, test, notes = split_films(films, names, None, options, source)
    wanted = _array_format(images, options, path)
    train, test = (
        replace(part, inputs=_convert(np.asarray(part.inputs), wanted)) for part in (train, test)
    )
    dataset = assemble(source.name, Task.MULTILABEL, CLASSES, train, test)
    return replace(dataset, notes=notes)


def _refuse_repeated(names: Sequence[str], path: Path) -> None:
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if first.setdefault(name, row) != row:
            raise DataError(f"{path}: names, row {row}: {name} is at row {first[name]} too")


def _in_order(labels: npt.NDArray[Any], classes: list[str], path: Path) -> npt.NDArray[np.float32]:
    """Return the labels with the classes in our order."""
    if sorted(classes) != sorted(CLASSES):
        odd = sorted(set(classes) ^ set(CLASSES)) or ["a class named twice"]
        raise DataError(f"{path}: classes must be the 14 findings; {odd[0]} is missing or unknown")
    if labels.ndim != 2 or labels.shape[1] != len(CLASSES):
        raise DataError(f"{path}: labels have shape {labels.shape}; expected (N, {len(CLASSES)})")
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{path}: labels are {labels.dtype}; needed: numbers")
    return labels[:, [classes.index(name) for name in CLASSES]].astype(np.float32)


def _array_format(images: npt.NDArray[Any], options: NihOptions, path: Path) -> ImageFormat:
    if images.dtype != np.uint8 or images.shape[1] != 1:
        raise DataError(
            f"{path}: images are {images.dtype} of {images.shape[1]} channels; expected grey uint8"
        )
    size = None if options.size is None else (options.size, options.size)
    return ImageFormat(options.channels, size)


def _convert(images: npt.NDArray[np.uint8], wanted: ImageFormat) -> npt.NDArray[np.uint8]:
    """Return grey images in a format; a new number of channels alone needs no decoder."""
    if wanted.size in (None, images.shape[2:]):
        return np.repeat(images, wanted.channels, axis=1) if wanted.channels > 1 else images
    return resize(images, wanted)


def load_films(source: Source, path: Path, options: NihOptions) -> Dataset:
    """Return the data set of a table, given by itself or by its folder, and of its films."""
    table = read_csv(_table(path))
    folder = Folder(options.images or table.path.parent)
    films, names, missing = _find(table, folder, options.unreadable)
    train, test, notes = split_films(films, names, table.path.parent, options, source)
    size = options.size or SIZE
    images = ImageSource(folder, ImageFormat(options.channels, (size, size)), options.unreadable)

    def place(name: str) -> str:
        line = find_line(table.path, _NAME, PurePosixPath(name).name.__eq__)
        return f"{table.path}: line {line}, column {_NAME}"

    split = NamedSplit(Task.MULTILABEL, CLASSES, train, test, missing + notes, place)
    return load_split(split, images, source)


def _table(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("Data_Entry_2017*.csv"))
    if not found:
        raise DataError(f"{path} holds no Data_Entry_2017.csv")
    return found[0]


def read_findings(table: CsvTable) -> npt.NDArray[np.float32]:
    """Return labels (N, 14) from findings joined by |; "No Finding" is a row of zeros."""
    numbers = {name: number for number, name in enumerate(CLASSES)}
    labels = np.zeros((len(table.rows), len(CLASSES)), dtype=np.float32)
    for row, findings in enumerate(table.column(_FINDINGS)):
        for finding in findings.split("|"):
            if finding in numbers:
                labels[row, numbers[finding]] = 1
            elif finding != _NONE or findings != _NONE:
                raise DataError(
                    f"{table.place(row, _FINDINGS)}: {finding!r} in {findings!r} is not a finding"
                    + nearest(finding, CLASSES)
                )
    return labels


def _find(
    table: CsvTable, folder: Folder, policy: Unreadable
) -> tuple[NamedExamples, list[str], tuple[str, ...]]:
    """Return the films whose files are there, their names, and a note on the others."""
    labels, names, patients = read_findings(table), table.column(_NAME), table.column(_PATIENT)
    refuse_doubles(table, _NAME)
    files = {PurePosixPath(path).name: path for path in folder.names()}
    rows = [row for row, name in enumerate(names) if name in files]
    missing = len(names) - len(rows)
    if missing and (policy == "refuse" or not rows):
        first = next(row for row, name in enumerate(names) if name not in files)
        raise DataError(
            f"{table.place(first, _NAME)}: {names[first]} is nowhere in {folder.path} ({missing} "
            f"of {len(names)} films are not); set the option images to their folder, or the option "
            "unreadable to skip if you have only a part of them"
        )
    films = name_examples(
        [files[names[row]] for row in rows],
        labels[rows],
        {"patient": [patients[row] for row in rows]},
    )
    note = f"{missing} of {len(names)} films of the table are not in {folder.path}, so left out"
    return films, [names[row] for row in rows], (note,) if missing else ()


def split_films(
    films: Rows, names: Sequence[str], lists: Path | None, options: NihOptions, source: Source
) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Return (train, test, notes) as the option `split`, the lists in a folder, or a draw says."""
    sides = _sides(names, lists, options)
    if sides is None:
        train, test = split_by_share(films, options.test_share, "patient", source.seed)
        notes: tuple[str, ...] = ()
    else:
        side = np.array([sides.get(name, "") for name in names], dtype=np.str_)
        train, test = (films.take(np.flatnonzero(side == part)) for part in LISTS)
        out = len(films) - len(train) - len(test)
        notes = (f"{out} films are in neither part of the split, so left out",) if out else ()
    for part, examples in (("train", train), ("test", test)):
        if len(examples) == 0:
            raise DataError(f"{source.name} data: the split leaves no {part} films")
    refuse_shared_patients(train, test, source.name)
    train = cap(train, options.n_train, source, "n_train")
    return train, cap(test, options.n_test, source, "n_test"), notes


def _sides(
    names: Sequence[str], lists: Path | None, options: NihOptions
) -> Mapping[str, str] | None:
    """Return the side of each film that has one, or None if no file gives them."""
    if options.split is not None:
        return _table_sides(options.split, names, options.leave_out)
    if lists is None or not all((lists / name).is_file() for name in LISTS.values()):
        return None
    sides: dict[str, str] = {}
    for side, name in LISTS.items():
        for film in _lines(lists / name):
            if sides.setdefault(film, side) != side:
                raise DataError(f"{lists / name}: {film} is in the other list too")
    return sides


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable_data(path, error) from error


def _table_sides(path: Path, names: Sequence[str], leave_out: Sequence[str]) -> Mapping[str, str]:
    table = read_csv(path)
    sides = dict(zip(table.column("image"), table.column("split"), strict=True))
    allowed = {"train", "test", *leave_out}
    for row, side in enumerate(table.column("split")):
        if side not in allowed:
            raise DataError(
                f"{table.place(row, 'split')}: the split is {side!r}; allowed: train and test, "
                "and what leave_out names"
            )
    missing = [name for name in names if name not in sides]
    if missing:
        raise DataError(
            f"{path} does not give the split of {missing[0]} ({len(missing)} such films)"
        )
    return sides
