"""A teacher's logits for the training examples of a data set, kept in an .npz file.

Logits of a fixed teacher are computed once, outside of the run: arrays `logits` (N, C), one row for
each training example in the order of the loader; optionally `labels` (N,) and `classes` (C,), by
which the rows are compared with the data set, and `text` (C, E), one prototype for each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.files import replacing
from fedbb.data.array_files import read_npz, read_texts
from fedbb.data.dataset import Dataset
from fedbb.data.download import sha256_of
from fedbb.errors import DataError, RunError
from fedbb.records import FloatArray


def save_teacher(
    path: str | PathLike[str], dataset: Dataset, logits: Any, text: Any = None
) -> None:
    """Write the file that `method.options.teacher` of a recipe names.

    Args:
        path: the file, which ends in .npz; an existing one is replaced.
        dataset: the data set as its loader returns it, before anything is drawn or held out.
        logits: (N, C), a row for each training example, scaled as the student is to learn them.
            Logarithms of probabilities will do.
        text: (C, E), a prototype for each class, such as CLIP's text embeddings.

    Raises:
        DataError: the shapes do not fit the data set, or a value is not finite.
    """
    where = str(path)
    if Path(path).suffix != ".npz":
        raise DataError(f"{where}: the name of a teacher file ends in .npz")
    arrays = {"logits": np.asarray(logits, dtype=np.float32), "labels": dataset.train.labels}
    arrays["classes"] = np.array(dataset.classes)
    _check_logits(arrays, dataset, where)
    if text is not None:
        arrays["text"] = np.asarray(text, dtype=np.float32)
        _check_text(arrays["text"], len(dataset.classes), where)
    with replacing(Path(path)) as file:
        np.savez(file, allow_pickle=False, **arrays)


def with_teacher(dataset: Dataset, path: str, sha256: str | None = None) -> Dataset:
    """Return a data set whose training examples have the teacher's logits of a file.

    Args:
        dataset: the data set as its loader returns it.
        path: the file.
        sha256: the SHA-256 that the file must have; None for any.

    Raises:
        DataError: the file cannot be read, or does not fit the data set.
        RunError: the file is another one than the run began with.
    """
    if sha256 is not None and (found := sha256_of(Path(path))) != sha256:
        raise RunError(
            f"the teacher file {path} is not the one of the run: its SHA-256 is {found}, and "
            f"method.teacher_sha256 is {sha256}"
        )
    arrays = read_npz(Path(path), ["logits"], ["labels", "classes"])
    _check_logits(arrays, dataset, path)
    logits = np.ascontiguousarray(arrays["logits"], dtype=np.float32)
    return replace(dataset, train=replace(dataset.train, teacher=logits))


def read_prototypes(path: str, classes: int) -> FloatArray:
    """Return the prototypes (C, E) of a teacher file, in float64.

    Raises:
        DataError: the file cannot be read, has no `text`, or one of another form.
    """
    text = read_npz(Path(path), ["text"], [])["text"]
    _check_text(text, classes, path)
    return text.astype(np.float64)


def _check_logits(arrays: dict[str, npt.NDArray[Any]], dataset: Dataset, where: str) -> None:
    logits, wanted = arrays["logits"], (len(dataset.train), len(dataset.classes))
    if logits.shape != wanted or logits.dtype.kind != "f":
        raise DataError(
            f"{where}: logits are {logits.dtype} of shape {logits.shape}; {dataset.name} needs "
            f"floats of shape {wanted}: a row for each training example, a column for each class"
        )
    with np.errstate(over="ignore"):
        broken = ~np.isfinite(logits.astype(np.float32)).all(axis=1)
    if broken.any():
        raise DataError(
            f"{where}: row {int(broken.argmax())} of the logits holds NaN or infinity in float32 "
            f"({int(broken.sum())} such rows)"
        )
    if "classes" in arrays:
        classes = read_texts(arrays["classes"], None, f"{where}: classes")
        if classes != list(dataset.classes):
            raise DataError(
                f"{where}: its classes are {_few(classes)}, and those of {dataset.name} are "
                f"{_few(dataset.classes)}"
            )
    labels = arrays.get("labels")
    if labels is None:
        return
    own = dataset.train.labels
    if labels.shape != own.shape or labels.dtype.kind not in "iuf":
        raise DataError(
            f"{where}: labels are {labels.dtype} of shape {labels.shape}, and those of "
            f"{dataset.name} have shape {own.shape}"
        )
    same = (labels == own) | ((labels != labels) & (own != own))  # NaN is an unknown label
    differ = ~same.reshape(len(own), -1).all(axis=1)
    if differ.any():
        raise DataError(
            f"{where} was made for other data: from row {int(differ.argmax())} on its labels "
            f"differ from those of {dataset.name} ({int(differ.sum())} such rows)"
        )


def _check_text(text: npt.NDArray[Any], classes: int, where: str) -> None:
    if text.ndim != 2 or len(text) != classes or text.dtype.kind != "f" or text.shape[1] < 1:
        raise DataError(
            f"{where}: text is {text.dtype} of shape {text.shape}; needed: floats of shape "
            f"({classes}, E): a prototype for each class"
        )
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(text.astype(np.float64), axis=1)
    if not np.isfinite(lengths).all() or (lengths == 0).any():
        raise DataError(f"{where}: a row of text is zero or not finite")


def _few(names: Sequence[str]) -> str:
    shown = names[:5]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")
