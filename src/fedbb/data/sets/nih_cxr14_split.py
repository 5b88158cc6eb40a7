"""Films divided into training and test ones, no patient on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedbb.data.csv_table import read_sheet
from fedbb.data.dataset import Examples
from fedbb.data.images.named_images import cap
from fedbb.data.patients import refuse_shared_patients
from fedbb.data.sets.nih_cxr14_options import NihOptions
from fedbb.data.source import Source
from fedbb.data.splitting import split_by_share
from fedbb.errors import DataError
from fedbb.records import IntArray

LISTS = {"train": "train_val_list.txt", "test": "test_list.txt"}
"""The published lists of files, one name a line."""


def split_films(
    films: Examples, names: Sequence[str], lists: Path | None, options: NihOptions, source: Source
) -> tuple[Examples, Examples, tuple[str, ...]]:
    """Return (train, test, notes) as the option `split`, the lists in a folder, or a draw says."""
    sides = _sides(names, lists, options)
    if sides is None:
        train, test = split_by_share(films, options.test_share, "patient", source.seed)
        notes: tuple[str, ...] = ()
    else:
        places = np.array([sides.get(name, "") for name in names], dtype=np.str_)
        train, test = (films.take(_where(places, side)) for side in LISTS)
        out = len(films) - len(train) - len(test)
        notes = (f"{out} films are in neither part of the split, so left out",) if out else ()
    for part, examples in (("train", train), ("test", test)):
        if len(examples) == 0:
            raise DataError(f"{source.name} data: the split leaves no {part} films")
    refuse_shared_patients(train, test, source.name)
    train = cap(train, options.n_train, source, "n_train")
    return train, cap(test, options.n_test, source, "n_test"), notes


def _where(places: np.ndarray[tuple[int], np.dtype[np.str_]], side: str) -> IntArray:
    return np.flatnonzero(places == side).astype(np.int64)


def _sides(
    names: Sequence[str], lists: Path | None, options: NihOptions
) -> Mapping[str, str] | None:
    """Return the side of each film that has one, or None if nothing tells sides."""
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
        raise DataError(f"cannot read {path}: {error}") from error


def _table_sides(path: Path, names: Sequence[str], leave_out: Sequence[str]) -> Mapping[str, str]:
    sheet = read_sheet(path)
    sides = dict(zip(sheet.column("image"), sheet.column("split"), strict=True))
    allowed = {"train", "test", *leave_out}
    for row, side in enumerate(sheet.column("split")):
        if side not in allowed:
            raise DataError(
                f"{sheet.place(row, 'split')}: the split is {side!r}; allowed are train and test, "
                "and what leave_out names"
            )
    missing = [name for name in names if name not in sides]
    if missing:
        raise DataError(
            f"{path} does not tell the split of {missing[0]} ({len(missing)} such films)"
        )
    return sides
