"""Predictions of a trained model for files: inputs and labels read, scored, written as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb._util.table import make_table, to_csv
from fedbb.data.array_files import find_arrays, read_npz, read_texts
from fedbb.data.csv_table import CsvTable, read_class_column, read_csv, read_label_columns
from fedbb.data.images.archive import Folder
from fedbb.data.images.decode import IMAGE_FORMATS, ImageFormat, ImageSource, Request, decode_all
from fedbb.data.registry import dataset_names, load_dataset
from fedbb.data.sets.features import read_table
from fedbb.data.tabular import ColumnTable, TableFormat
from fedbb.data.transforms import as_images
from fedbb.errors import DataError
from fedbb.evaluation.metrics import Scores, score_logits
from fedbb.evaluation.score_report import Bootstrap, ScoreReport, score_model
from fedbb.inference.model import InferenceModel, check_inputs
from fedbb.records import FloatArray, Task
from fedbb.runs.model_info import ModelInfo

IMAGE_FILES = tuple(ending for endings in IMAGE_FORMATS.values() for ending in endings)
CLASS_COLUMNS = ("label", "class")
"""Columns that hold the class of a row, if the user names none."""


@dataclass(frozen=True)
class ReadOptions:
    """How inputs and labels are read from files.

    Args:
        image_column: Column of a CSV file that names the image files.
        class_column: Column of a table with the class; if None, that of the training data, "label"
            or "class", if present.
        resize: Whether images of another size are scaled to that of the model.
        allow_unknown: Whether a category that no training row had is encoded as zeros.
    """

    image_column: str = "image"
    class_column: str | None = None
    resize: bool = False
    allow_unknown: bool = False


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs to predict.

    Args:
        names: What identifies them: file names, or row numbers.
        inputs: The inputs (N, …).
        labels: Class numbers (N,) or labels (N, C) of 0, 1 and NaN; None if they are not known.
    """

    names: tuple[str, ...]
    inputs: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of samples.

    Args:
        names: What identifies the samples.
        probabilities: (N, C).
        predicted: The classes said of each sample; exactly one for a multi-class task.
        classes: Names of the classes.
        labels: The true labels, if they are known.
        scores: The scores by the true labels, if they are known.
        report: The same in full, with the decisions above and with intervals.
    """

    names: tuple[str, ...]
    probabilities: FloatArray
    predicted: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...]
    labels: npt.NDArray[Any] | None
    scores: Scores | None
    report: ScoreReport | None = None


def read_samples(
    source: str | Path, info: ModelInfo, options: ReadOptions | None = None
) -> Samples:
    """Read what a model is to predict.

    Args:
        source: An .npz file (`images` or `inputs`, and `labels` if known), a CSV file that names
            image files, a folder of images (sub-folders that are named by classes are labels), an
            image file, or the name of a data set, whose test part is taken. For a model of a
            table, a CSV, parquet or .npz file with the columns of the training data.
        info: The model, which decides size, channels and classes.
        options: How files are read.

    Returns:
        The inputs with their names, and their labels where they are known.

    Raises:
        DataError: Nothing can be read, or it does not fit the model.
    """
    options, path = options or ReadOptions(), Path(source)
    if path.is_dir():
        samples = _from_folder(path, info, options)
    elif info.table is not None and _is_table(path):
        samples = _from_table(path, info.table, info, options)
    elif path.suffix == ".npz" and path.exists():
        samples = _from_npz(path, info)
    elif path.name.endswith((".csv", ".csv.gz")) and path.exists():
        samples = _from_csv(path, info, options)
    elif path.suffix.lower() in IMAGE_FILES and path.exists():
        samples = Samples((path.name,), _decode(path.parent, (path.name,), info, options))
    elif str(source) in dataset_names():
        samples = _from_catalogue(str(source), info)
    else:
        tables = ".npz, .csv" if info.table is None else ".npz, .csv, .parquet"
        if path.suffix and not path.exists():
            raise DataError(f"{source} does not exist")
        raise DataError(
            f"{source} is not a folder, a {tables} or image file, or the name of a data set"
            + nearest(str(source), dataset_names())
        )
    return replace(samples, inputs=check_inputs(samples.inputs, info))


def predict(model: InferenceModel, samples: Samples) -> Predictions:
    """Return a model's predictions, with scores if the labels are known.

    Args:
        model: The model.
        samples: What to predict.
    """
    logits = model.predict_logits(samples.inputs)
    scores = report = None
    if samples.labels is not None:
        scores = score_logits(logits, samples.labels, model.task)
        limits = model.info.thresholds
        report = score_model(
            logits,
            samples.labels,
            model.task,
            model.classes,
            thresholds=None if limits is None else np.array(limits),
            bootstrap=Bootstrap(),
        )
    probabilities = model.probabilities(logits)
    names = np.array(model.classes)
    return Predictions(
        samples.names,
        probabilities,
        tuple(tuple(names[row].tolist()) for row in model.decide(probabilities)),
        model.classes,
        samples.labels,
        scores,
        report,
    )


def write_csv(predictions: Predictions, file: TextIO) -> None:
    """Write a row for each sample: name, true label if known, predicted classes, probabilities.

    Args:
        predictions: What to write.
        file: An open text file.
    """
    known = predictions.labels is not None
    chances = (f"p({name})" for name in predictions.classes)
    rows = (
        (
            name,
            *([";".join(_truth(predictions, row))] if known else []),
            ";".join(predictions.predicted[row]),
            *predictions.probabilities[row].tolist(),
        )
        for row, name in enumerate(predictions.names)
    )
    head = ("sample", *(["label"] if known else []), "predicted", *chances)
    file.write(to_csv(make_table(head, rows)))


def _truth(predictions: Predictions, row: int) -> Sequence[str]:
    assert predictions.labels is not None
    label = predictions.labels[row]
    if label.ndim == 0:
        return [predictions.classes[int(label)]]
    return [name for name, mark in zip(predictions.classes, label, strict=True) if mark == 1]


def _from_catalogue(name: str, info: ModelInfo) -> Samples:
    dataset = load_dataset(name)
    if str(dataset.task) != info.task:
        raise DataError(f"{name} is {dataset.task}, and the model is {info.task}")
    if dataset.classes != info.classes:
        raise DataError(
            f"{name} has the classes {_some(dataset.classes)}, and the model has "
            f"{_some(info.classes)}"
        )
    names = tuple(str(row) for row in range(len(dataset.test)))
    return Samples(names, np.asarray(dataset.test.inputs), dataset.test.labels)


def _from_npz(path: Path, info: ModelInfo) -> Samples:
    arrays = read_npz(path, (), ("images", "inputs", "labels", "classes"))
    held = [name for name in ("inputs", "images") if name in arrays]
    if len(held) != 1:
        raise DataError(f"{path}: one array must be called images or inputs, not {held or 'none'}")
    inputs = arrays[held[0]]
    if held[0] == "images" and len(info.input_shape) == 3:
        inputs = as_images(inputs, "auto", f"{path}: images")
    labels = None
    if "labels" in arrays:
        named = None
        if "classes" in arrays:
            named = tuple(read_texts(arrays["classes"], None, f"{path}: classes"))
        labels = _labels_of_array(arrays["labels"], named, info, f"{path}: labels")
        if len(labels) != len(inputs):
            raise DataError(f"{path}: {len(inputs)} inputs but {len(labels)} labels")
    return Samples(tuple(str(row) for row in range(len(inputs))), inputs, labels)


def _labels_of_array(
    labels: npt.NDArray[Any], named: tuple[str, ...] | None, info: ModelInfo, where: str
) -> npt.NDArray[Any]:
    """Return labels by the numbers of the model's classes."""
    if Task(info.task) is Task.MULTILABEL:
        if labels.ndim != 2 or labels.shape[1] != len(info.classes):
            raise DataError(
                f"{where} have shape {labels.shape}; the model has {len(info.classes)} labels: "
                f"{_some(info.classes)}"
            )
        if named is not None and named != info.classes:
            raise DataError(f"{where}: the classes are {_some(named)}, not {_some(info.classes)}")
        if labels.dtype.kind not in "biuf":
            raise DataError(f"{where} are {labels.dtype}; needed: numbers")
        return labels.astype(np.float32)
    if labels.ndim != 1:
        raise DataError(f"{where} have shape {labels.shape}; the model has one class for a sample")
    if labels.dtype.kind in "iu":
        known = named or info.classes
        outside = (labels < 0) | (labels >= len(known))
        if outside.any():
            row = int(np.argmax(outside))
            raise DataError(f"{where}[{row}] is {labels[row]}; allowed: 0 to {len(known) - 1}")
        labels = np.array(known)[labels]
    texts = read_texts(labels, None, where)
    return class_numbers(texts, info.classes, lambda row: f"{where}[{row}]")


def class_numbers(
    names: Sequence[str], classes: tuple[str, ...], place: Any
) -> npt.NDArray[np.int64]:
    """Return the numbers of class names; DataError names the first that the model does not know."""
    number = {name: position for position, name in enumerate(classes)}
    for row, name in enumerate(names):
        if name not in number:
            raise DataError(
                f"{place(row)}: the model knows no class {name!r}" + nearest(name, classes)
            )
    return np.array([number[name] for name in names], dtype=np.int64)


def _from_csv(path: Path, info: ModelInfo, options: ReadOptions) -> Samples:
    if len(info.input_shape) == 1:
        raise DataError(
            f"{path}: the model takes vectors and does not describe columns that become one; "
            "give an .npz file with the array inputs"
        )
    table = read_csv(path)
    names = tuple(table.column(options.image_column))
    inputs = _decode(path.parent, names, info, options)
    return Samples(names, inputs, _labels_of_table(table, info, options))


def _is_table(path: Path) -> bool:
    """Return whether a file holds raw columns; an .npz file may hold encoded inputs instead."""
    if not path.exists():
        return False
    if path.suffix == ".npz":
        return "features" in find_arrays(path)
    return path.name.endswith((".csv", ".csv.gz", ".parquet"))


def _from_table(path: Path, form: TableFormat, info: ModelInfo, options: ReadOptions) -> Samples:
    table = read_table(path)
    inputs = form.encode(table, allow_unknown=options.allow_unknown)
    has_names = form.id_column is not None and form.id_column in table.header
    names = table.column(str(form.id_column)) if has_names else map(str, range(len(table)))
    if options.class_column is None and form.class_column in table.header:
        options = replace(options, class_column=form.class_column)
    return Samples(tuple(names), inputs, _labels_of_table(table, info, options))


def _labels_of_table(
    table: CsvTable | ColumnTable, info: ModelInfo, options: ReadOptions
) -> npt.NDArray[Any] | None:
    if Task(info.task) is Task.MULTILABEL:
        held = [name for name in info.classes if name in table.header]
        if not held:
            return None
        missing = [name for name in info.classes if name not in table.header]
        if missing:
            raise DataError(f"{table.title}: no column for the labels {_some(tuple(missing))}")
        return read_label_columns(table, info.classes, "ignore", "ignore")
    column = options.class_column
    if column is None:
        read = () if info.table is None else info.table.encoder.wanted
        usual = (name for name in CLASS_COLUMNS if name in table.header and name not in read)
        column = next(usual, None)
    return None if column is None else read_class_column(table, column, info.classes)[1]


def _from_folder(path: Path, info: ModelInfo, options: ReadOptions) -> Samples:
    names = tuple(
        sorted(name for name in Folder(path).names() if Path(name).suffix.lower() in IMAGE_FILES)
    )
    if not names:
        raise DataError(f"{path} holds no images; known: {', '.join(IMAGE_FILES)}")
    labels = None
    folders = [Path(name).parts[0] for name in names if len(Path(name).parts) > 1]
    if Task(info.task) is Task.MULTICLASS and len(folders) == len(names):
        labels = class_numbers(folders, info.classes, lambda row: f"{path}/{names[row]}")
    return Samples(names, _decode(path, names, info, options), labels)


def _decode(
    folder: Path, names: tuple[str, ...], info: ModelInfo, options: ReadOptions
) -> npt.NDArray[Any]:
    shape = info.input_shape
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise DataError(
            f"the model takes inputs of shape {shape}, which are not images; give an .npz file"
        )
    wanted = ImageFormat(shape[0], (shape[1], shape[2]) if options.resize else None)
    images = decode_all(Request(ImageSource(Folder(folder), wanted), names)).images
    if images.shape[1:] != shape:
        raise DataError(
            f"the images have {images.shape[2]} × {images.shape[3]} pixels, and the model takes "
            f"{shape[1]} × {shape[2]}; --resize scales them"
        )
    return images


def _some(names: tuple[str, ...], shown: int = 8) -> str:
    more = f", … ({len(names)})" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
