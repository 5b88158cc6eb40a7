"""Data sets of Hugging Face's library, in memory or as `save_to_disk` leaves them.

A saved folder is read with pyarrow alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedbb._util.files import explain_error, parse_json, unreadable_data
from fedbb.data.dataset import Dataset, TestShare, from_tables
from fedbb.data.images.decode import FAULTS, IMAGE_FORMATS, Size, as_size, refuse_frames, tolerance
from fedbb.data.packed import refuse_bomb
from fedbb.data.parquet import import_arrow
from fedbb.data.rows import LABEL_KEYS, RowFormat, read_rows
from fedbb.data.source import Source, read_options
from fedbb.data.splits import VALIDATION
from fedbb.errors import DataError

Features = Mapping[str, Mapping[str, Any]]
"""What a data set says of its columns, as its `dataset_info.json` holds it."""


@dataclass(frozen=True)
class HuggingFaceOptions:
    """How to read a saved data set.

    Attributes:
        input_key: column of the inputs; by default "image", "input_ids" or another usual name.
        label_key: column of the labels; by default "label", "labels", "target" or "y".
        columns: further columns to keep, such as the site.
        size: height and width that images are scaled to, or one number for both.
        test_share: share of test rows, if there is no split of that name.
        group: column of which no value is in both parts, such as the patient.
    """

    input_key: str | None = None
    label_key: str | None = None
    columns: tuple[str, ...] = ()
    size: Size = None
    test_share: float = 0.2
    group: str | None = None


def load(source: Source) -> Dataset:
    """Return the data set of a folder that `save_to_disk` made."""
    options = read_options(HuggingFaceOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the folder that save_to_disk made")
    parts = read_saved(source.path)
    columns = options.columns
    if options.group is not None and options.group not in columns:
        columns = (*columns, options.group)
    size = as_size(options.size, source.name)
    form = RowFormat(options.input_key, options.label_key, columns, size=size)
    share = TestShare(options.test_share, options.group, source.seed)
    made = make_dataset(source.path.name, parts, form, None, share)
    return made if made.train.inputs.dtype.kind == "i" else made.normalized()


def make_dataset(
    name: str,
    splits: Mapping[str, Any],
    form: RowFormat,
    classes: tuple[str, ...] | None,
    share: TestShare,
) -> Dataset:
    """Return the data set of splits of Hugging Face's library, or of saved ones.

    Args:
        name: name of the data set.
        splits: "train" and, if they are there, "test" and "validation".
        form: which columns hold what.
        classes: names of the classes; None for those that the data set carries.
        share: the test share, for splits without "test".
    """
    parts = {_part(split): rows for split, rows in splits.items()}
    if "train" not in parts:
        raise DataError(f"{name} has the splits {', '.join(splits) or 'none'}; needed: train")
    known = ("train", "test", "validation")
    wanted = {part: rows for part, rows in parts.items() if part in known}
    features = features_of(wanted["train"])
    label = form.label_key or next((key for key in LABEL_KEYS if key in features), None)
    names = _class_names(features.get(label or "", {}))
    read = {part: _Rows(rows, features, label, len(names)) for part, rows in wanted.items()}
    tables = {part: read_rows(rows, form, f"{name} {part}") for part, rows in read.items()}
    if "test" in tables:
        share = replace(share, share=None)
    return from_tables(name, tables, None, classes or names or None, share)


def _part(split: str) -> str:
    return "validation" if split in VALIDATION else split


def features_of(rows: Any) -> Features:
    """Return what a data set says of its columns, as plain values."""
    held = getattr(rows, "features", None)
    if held is None:
        raise DataError(f"{type(rows).__name__} has no features; needed: a Hugging Face Dataset")
    plain = held.to_dict() if hasattr(held, "to_dict") else held
    if not isinstance(plain, Mapping):
        raise DataError(f"the features of {type(rows).__name__} are not a mapping")
    return plain


def _inner(feature: Any) -> Mapping[str, Any]:
    """Return the feature of a list's items; lists of older versions are a list of one feature."""
    if isinstance(feature, list):
        return feature[0] if feature else {}
    held = feature.get("feature") if isinstance(feature, Mapping) else None
    return held if isinstance(held, Mapping) else {}


def _class_names(feature: Any) -> tuple[str, ...]:
    names = feature.get("names") if isinstance(feature, Mapping) else None
    names = names or _inner(feature).get("names") or ()
    return tuple(str(name) for name in names)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows with arrays in the type of their column, and lists of classes as 0 and 1."""

    rows: Any
    features: Features
    label: str | None
    classes: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = dict(self.rows[index])
        for key, value in row.items():
            feature = self.features.get(key, {})
            if key == self.label and _inner(feature).get("names"):
                row[key] = self._marks(value, index)
            elif isinstance(value, list):
                row[key] = _typed(value, feature)
        return row

    def _marks(self, held: Any, index: int) -> Any:
        marks = np.zeros(self.classes, dtype=np.float32)
        for number in held:
            if not 0 <= number < self.classes:
                raise DataError(f"row {index}: class {number} of {self.classes} classes")
            marks[number] = 1
        return marks


def _typed(value: list[Any], feature: Any) -> Any:
    """Return nested lists as an array of the type that the column has."""
    while isinstance(feature, Mapping) and "dtype" not in feature and _inner(feature):
        feature = _inner(feature)
    kind = feature.get("dtype") if isinstance(feature, Mapping) else None
    try:
        return np.asarray(value, dtype=None if kind in (None, "string") else np.dtype(str(kind)))
    except (TypeError, ValueError):
        return value


@dataclass(frozen=True, eq=False)
class SavedSplit:
    """The rows of one saved split."""

    path: Path
    table: Any
    features: Features

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> dict[str, Any]:
        (row,) = self.table.slice(index, 1).to_pylist()
        for key, feature in self.features.items():
            if isinstance(feature, Mapping) and feature.get("_type") == "Image":
                row[key] = self._image(row[key], index, key)
        return dict(row)

    def _image(self, held: Any, row: int, key: str) -> Image.Image:
        where = f"{self.path}: row {row}, column {key}"
        content = held.get("bytes") if isinstance(held, Mapping) else None
        if not content:
            raise DataError(f"{where}: the image is not in the file")
        try:
            with tolerance():
                image = Image.open(BytesIO(content), formats=tuple(IMAGE_FORMATS))
                refuse_frames(image)
                image.load()
        except FAULTS as error:
            # Pillow would name a buffer in memory, which helps nobody.
            is_buffer = isinstance(error, UnidentifiedImageError)
            reason = "it is not an image" if is_buffer else error
            raise DataError(f"{where}: the image cannot be read: {reason}") from error
        return image


def read_saved(path: Path) -> dict[str, SavedSplit]:
    """Return the splits of a folder that `save_to_disk` made of a `Dataset` or `DatasetDict`."""
    import_arrow(f"{path} is a saved data set")
    if (path / "dataset_dict.json").exists():
        splits = _read_json(path / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or not all(_is_plain(name) for name in splits):
            raise DataError(f"{path / 'dataset_dict.json'} names no splits")
        return {name: _read_split(path / name) for name in splits}
    return {"train": _read_split(path)}


def _is_plain(name: Any) -> bool:
    """Tell whether a name is that of a file or folder right here."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _read_split(folder: Path) -> SavedSplit:
    import pyarrow

    files = _read_json(folder / "state.json").get("_data_files")
    features = _read_json(folder / "dataset_info.json").get("features")
    if not isinstance(files, list) or not isinstance(features, Mapping):
        raise DataError(f"{folder}: state.json names no files, or dataset_info.json no features")
    tables = []
    for item in files:
        name = item.get("filename") if isinstance(item, Mapping) else None
        if not _is_plain(name):
            raise DataError(f"{folder / 'state.json'}: {name!r} is not a file in this folder")
        try:
            tables.append(_read_arrow(folder / str(name)))
        except (OSError, pyarrow.ArrowException) as error:
            raise unreadable_data(folder / str(name), error, " as Arrow") from error
    if not tables:
        raise DataError(f"{folder / 'state.json'} names no files")
    return SavedSplit(folder, pyarrow.concat_tables(tables), features)


def _read_arrow(path: Path) -> Any:
    """Return the table of a file, mapped where it lies unless its batches are compressed."""
    import pyarrow

    batches, held = [], 0
    with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as reader:
        for batch in reader:
            held += batch.nbytes
            refuse_bomb(str(path), path.stat().st_size, held)
            batches.append(batch)
        return pyarrow.Table.from_batches(batches, reader.schema)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        if not path.parent.exists():
            raise unreadable_data(path.parent, error) from error
        raise DataError(
            f"{path.parent} is not a data set that save_to_disk made: cannot read {path.name}: "
            f"{explain_error(error)}"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is no JSON object")
    return content
