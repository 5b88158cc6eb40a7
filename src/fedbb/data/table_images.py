"""The images that a CSV file names, all of one form; unreadable ones are refused or skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedbb.data.pictures import Form, read_picture
from fedbb.data.sheet import Sheet
from fedbb.errors import DataError
from fedbb.records import IntArray

_NAMED = 5


@dataclass(frozen=True, eq=False)
class Gallery:
    """Images (N, channels, height, width), the rows they belong to, and names of those skipped."""

    images: npt.NDArray[np.uint8]
    rows: IntArray
    skipped: tuple[str, ...]

    def notes(self) -> tuple[str, ...]:
        """Return what the log should say of the skipped ones."""
        if not self.skipped:
            return ()
        more = ", …" if len(self.skipped) > _NAMED else ""
        named = ", ".join(self.skipped[:_NAMED])
        return (f"{len(self.skipped)} unreadable images skipped: {named}{more}",)


def read_images(
    sheet: Sheet, column: str, folder: Path, form: Form, policy: Literal["refuse", "skip"]
) -> Gallery:
    """Read the files that a column names; DataError names file and line of the first refused."""
    images: list[npt.NDArray[np.uint8]] = []
    rows: list[int] = []
    skipped: list[str] = []
    for row, name in enumerate(_file_names(sheet, column)):
        try:
            image = read_picture(folder / name, form)
            _check_size(image, images, name)
        except DataError as error:
            if policy == "refuse":
                raise DataError(f"{sheet.place(row, column)}: {error}") from error
            skipped.append(name)
        else:
            images.append(image)
            rows.append(row)
    if not images:
        raise DataError(f"{sheet.path}: none of its {len(sheet.rows)} images can be read")
    return Gallery(np.stack(images), np.array(rows, dtype=np.int64), tuple(skipped))


def _file_names(sheet: Sheet, column: str) -> list[str]:
    """Return the names; a blank one, or one that comes twice, is refused."""
    names = sheet.column(column)
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if not name:
            raise DataError(f"{sheet.place(row, column)}: there is no file name")
        if name in first:
            raise DataError(
                f"{sheet.place(row, column)}: {name} stands on line {sheet.lines[first[name]]} too"
            )
        first[name] = row
    return names


def _check_size(
    image: npt.NDArray[np.uint8], others: Sequence[npt.NDArray[np.uint8]], name: str
) -> None:
    if others and image.shape != others[0].shape:
        height, width = image.shape[1:]
        raise DataError(
            f"image {name} has {height} × {width} pixels, the first one "
            f"{others[0].shape[1]} × {others[0].shape[2]}; set the option size to bring all to one"
        )
