"""MedMNIST's .npz files: training, validation and test images of one medical task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.array_files import StoredArray, find_arrays, missing_array, read_inputs
from fedbb.data.dataset import Dataset, assemble
from fedbb.data.examples import Examples, count_numbered_classes
from fedbb.data.images.decode import Size, as_size, resize_arrays
from fedbb.data.source import Source, read_options
from fedbb.data.transforms import as_pixels
from fedbb.errors import DataError
from fedbb.records import Task

PARTS = ("train", "test", "val")

_ORGANS = (
    "bladder|femur-left|femur-right|heart|kidney-left|kidney-right|liver|lung-left|lung-right|"
    "pancreas|spleen"
)
CLASSES = {
    "pathmnist": "adipose|background|debris|lymphocytes|mucus|smooth muscle|normal colon mucosa|"
    "cancer-associated stroma|colorectal adenocarcinoma epithelium",
    "chestmnist": "atelectasis|cardiomegaly|effusion|infiltration|mass|nodule|pneumonia|"
    "pneumothorax|consolidation|edema|emphysema|fibrosis|pleural|hernia",
    "dermamnist": "actinic keratoses and intraepithelial carcinoma|basal cell carcinoma|benign "
    "keratosis-like lesions|dermatofibroma|melanoma|melanocytic nevi|vascular lesions",
    "octmnist": "choroidal neovascularization|diabetic macular edema|drusen|normal",
    "pneumoniamnist": "normal|pneumonia",
    "breastmnist": "malignant|normal, benign",
    "bloodmnist": "basophil|eosinophil|erythroblast|immature granulocytes|lymphocyte|monocyte|"
    "neutrophil|platelet",
    "tissuemnist": "collecting duct, connecting tubule|distal convoluted tubule|glomerular "
    "endothelial cells|interstitial endothelial cells|leukocytes|podocytes|proximal tubule "
    "segments|thick ascending limb",
    "organamnist": _ORGANS,
    "organcmnist": _ORGANS,
    "organsmnist": _ORGANS,
    "organmnist3d": "liver|kidney-right|kidney-left|femur-right|femur-left|bladder|heart|"
    "lung-right|lung-left|spleen|pancreas",
    "nodulemnist3d": "benign|malignant",
    "adrenalmnist3d": "normal|hyperplasia",
    "fracturemnist3d": "buckle rib fracture|nondisplaced rib fracture|displaced rib fracture",
    "vesselmnist3d": "vessel|aneurysm",
    "synapsemnist3d": "inhibitory synapse|excitatory synapse",
}
"""Names of the classes by number, as medmnist 3.0.2 lists them, by the beginning of the file's
name. A file of another name, or with another number of classes, has numbers."""


@dataclass(frozen=True)
class MedMnistOptions:
    """How to read a MedMNIST file.

    Attributes:
        classes: names of the classes by number; the files themselves have none.
        size: height and width that images are scaled to, or one number for both.
    """

    classes: tuple[str, ...] = ()
    size: Size = None


def load(source: Source) -> Dataset:
    """Return the data set of a MedMNIST file."""
    options = read_options(MedMnistOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the .npz file of MedMNIST")
    path = source.path
    stored = find_arrays(path)
    for name in (f"{part}_{kind}" for part in PARTS for kind in ("images", "labels")):
        if name not in stored:
            raise missing_array(path, name, stored)
    labels = {part: stored[f"{part}_labels"].read() for part in PARTS}
    task = _task(labels, path)
    size = as_size(options.size, source.name)
    parts = {
        part: Examples(_images(stored[f"{part}_images"], size, source), _labels(held, task))
        for part, held in labels.items()
    }
    classes = options.classes or _classes(path, labels, task)
    return assemble(path.stem, task, classes, *parts.values())


def _images(array: StoredArray, size: tuple[int, int] | None, source: Source) -> npt.NDArray[Any]:
    where = f"{array.path}: {array.name}"
    convert = partial(_channels_first, size=size, where=where)
    return read_inputs(array, convert, ("medmnist", size), source.image_cache)


def _channels_first(
    array: npt.NDArray[Any], size: tuple[int, int] | None, where: str
) -> npt.NDArray[Any]:
    """Return grey images, images in color (…, 3) or volumes with an axis of channels."""
    if array.ndim == 3:
        images = array[:, None]
    elif array.ndim == 4 and array.shape[-1] == 3:
        images = array.transpose(0, 3, 1, 2)
    elif array.ndim == 4:
        images = array[:, None]
    else:
        raise DataError(
            f"{where} has shape {array.shape}; MedMNIST has (N, height, width), (N, height, "
            "width, 3) and, for volumes, (N, depth, height, width)"
        )
    pixels = as_pixels(images, where)
    return pixels if size is None else resize_arrays(pixels, size, where)


def _task(labels: dict[str, npt.NDArray[Any]], path: Path) -> Task:
    for part, held in labels.items():
        if held.ndim != 2 or held.dtype.kind not in "iu":
            raise DataError(
                f"{path}: {part}_labels is {held.dtype} of shape {held.shape}; MedMNIST has whole "
                "numbers (N, 1), or (N, classes) of 0 and 1"
            )
    widths = {held.shape[1] for held in labels.values()}
    if len(widths) > 1:
        raise DataError(f"{path}: the labels of its parts have {sorted(widths)} columns")
    return Task.MULTICLASS if widths == {1} else Task.MULTILABEL


def _labels(labels: npt.NDArray[Any], task: Task) -> npt.NDArray[Any]:
    if task is Task.MULTICLASS:
        return labels[:, 0].astype(np.int64)
    return labels.astype(np.float32)


def _classes(path: Path, labels: dict[str, npt.NDArray[Any]], task: Task) -> tuple[str, ...]:
    if task is Task.MULTILABEL:
        number = labels["train"].shape[1]
    else:
        whole = {f"{path}: {part}_labels": held for part, held in labels.items()}
        number = count_numbered_classes(whole)
    known = next((text for key, text in CLASSES.items() if path.stem.startswith(key)), "")
    named = tuple(known.split("|"))
    return named if len(named) == number else tuple(str(label) for label in range(number))
