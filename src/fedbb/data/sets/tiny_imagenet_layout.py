"""The layout of Tiny-ImageNet: which file is of which class."""

from __future__ import annotations

from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np

from fedbb.data.dataset import Examples
from fedbb.data.images.archive import Bundle, read_text
from fedbb.data.images.named_images import Parts, name_examples
from fedbb.errors import DataError
from fedbb.records import Task

_CLASS_LIST = "wnids.txt"


def list_images(bundle: Bundle) -> Parts:
    """Return the names of all images with their classes, in alphabetical order of both."""
    names = bundle.names()
    root = _root(names, bundle.path)
    wnids = sorted(set(read_text(bundle, f"{root}{_CLASS_LIST}").split()))
    if not wnids:
        raise DataError(f"{bundle.path}: {root}{_CLASS_LIST} names no class")
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    train = _training(names, root, numbers)
    present = set(train.labels.tolist())
    absent = [wnid for wnid in wnids if numbers[wnid] not in present]
    if absent:
        raise DataError(
            f"{bundle.path}: no training images of {absent[0]}, which {_CLASS_LIST} names; "
            f"expected {root}train/{absent[0]}/images/*.JPEG ({len(absent)} such classes)"
        )
    test = _annotated(bundle, root, numbers)
    return Parts(Task.MULTICLASS, _titles(bundle, names, root, wnids), train, test)


def _root(names: list[str], path: Path) -> str:
    """Return what stands before the names of the layout, such as "tiny-imagenet-200/"."""
    found = [name for name in names if PurePosixPath(name).name == _CLASS_LIST]
    if not found:
        raise DataError(
            f"{path} is not in the layout of Tiny-ImageNet: it has no {_CLASS_LIST} (beside "
            "train/, val/images/ and val/val_annotations.txt)"
        )
    return min(found, key=len).removesuffix(_CLASS_LIST)


def _training(names: list[str], root: str, numbers: dict[str, int]) -> Examples:
    """Return the files train/<wnid>/images/* of known classes."""
    found = []
    for name in names:
        match name.removeprefix(root).split("/"):
            case ["train", wnid, "images", file] if wnid in numbers and not file.startswith("."):
                found.append((numbers[wnid], name))
    found.sort()
    labels = np.array([number for number, _ in found], dtype=np.int64)
    return name_examples([name for _, name in found], labels, {})


def _annotated(bundle: Bundle, root: str, numbers: dict[str, int]) -> Examples:
    """Return the images of val/ whose classes are known, as val_annotations.txt says."""
    place = f"{root}val/val_annotations.txt"
    found = []
    for line, text in enumerate(read_text(bundle, place).splitlines(), start=1):
        fields = text.split("\t")
        if len(fields) < 2 and text.strip():
            raise DataError(f"{bundle.path}: {place} line {line} is {text!r}; expected file, class")
        if len(fields) >= 2 and fields[1].strip() in numbers:
            found.append((numbers[fields[1].strip()], f"{root}val/images/{fields[0].strip()}"))
    found.sort()
    labels = np.array([number for number, _ in found], dtype=np.int64)
    return name_examples([name for _, name in found], labels, {})


def _titles(bundle: Bundle, names: list[str], root: str, wnids: list[str]) -> tuple[str, ...]:
    """Return the first word of each class in words.txt, or its number where that does not do."""
    if f"{root}words.txt" not in names:
        return tuple(wnids)
    words = dict.fromkeys(wnids, "")
    for line in read_text(bundle, f"{root}words.txt").splitlines():
        wnid, _, title = line.partition("\t")
        if wnid in words:
            words[wnid] = title.split(",")[0].strip()
    often = Counter(words.values())
    return tuple(word if word and often[word] == 1 else wnid for wnid, word in words.items())
