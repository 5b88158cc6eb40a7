"""The films of NIH ChestX-ray14 as arrays of an .npz file, made smaller beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb.data.assemble import assemble
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.images.decode import Form, resize
from fedbb.data.layout import as_images
from fedbb.data.sets.nih_cxr14_options import CLASSES, NihOptions
from fedbb.data.sets.nih_cxr14_split import split_films
from fedbb.data.sets.npz import read_archive
from fedbb.data.source import Source
from fedbb.errors import DataError
from fedbb.records import Task

_NEEDED = ("images", "labels", "patient", "names", "classes")


def load_arrays(source: Source, path: Path, options: NihOptions) -> Dataset:
    """Return the data set of the arrays images, labels, patient, names and classes."""
    archive = read_archive(path)
    for name in _NEEDED:
        if name not in archive:
            raise DataError(f"{path}: no array {name!r}" + nearest(name, archive))
        if name != "classes" and len(archive[name]) != len(archive["images"]):
            raise DataError(
                f"{path}: {len(archive['images'])} images but {len(archive[name])} {name}"
            )
    labels = _in_order(archive["labels"], archive["classes"].astype(str).tolist(), path)
    images = as_images(archive["images"], "auto", f"{path}: images")
    films = Examples(images, labels, {"patient": archive["patient"].astype(str)})
    names = archive["names"].astype(str).tolist()
    train, test, notes = split_films(films, names, None, options, source)
    form = _form(images, options, path)
    train, test = (replace(part, images=_shape(part.images, form)) for part in (train, test))
    dataset = assemble(source.name, Task.MULTILABEL, CLASSES, train, test)
    return replace(dataset, notes=notes)


def _in_order(labels: npt.NDArray[Any], classes: list[str], path: Path) -> npt.NDArray[np.float32]:
    """Return the labels with the classes in our order."""
    if sorted(classes) != sorted(CLASSES):
        odd = sorted(set(classes) ^ set(CLASSES)) or ["a class named twice"]
        raise DataError(f"{path}: classes must be the 14 findings; {odd[0]} is missing or unknown")
    if labels.ndim != 2 or labels.shape[1] != len(CLASSES):
        raise DataError(f"{path}: labels have shape {labels.shape}; expected (N, {len(CLASSES)})")
    return labels[:, [classes.index(name) for name in CLASSES]].astype(np.float32)


def _form(images: npt.NDArray[Any], options: NihOptions, path: Path) -> Form:
    if images.dtype != np.uint8 or images.shape[1] != 1:
        raise DataError(
            f"{path}: images are {images.dtype} of {images.shape[1]} channels; expected grey uint8"
        )
    size = None if options.size is None else (options.size, options.size)
    return Form(options.channels, size)


def _shape(images: npt.NDArray[np.uint8], form: Form) -> npt.NDArray[np.uint8]:
    """Return grey images in a form; where only channels are asked for, without a decoder."""
    if form.size in (None, images.shape[2:]):
        return np.repeat(images, form.channels, axis=1) if form.channels > 1 else images
    return resize(images, form)
