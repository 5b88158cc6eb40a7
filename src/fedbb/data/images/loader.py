"""Image files decoded side by side; what becomes of unreadable ones is the user's choice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedbb.data.download import Progress
from fedbb.data.images.archive import Bundle
from fedbb.data.images.decode import Form, decode_picture, tolerance
from fedbb.errors import DataError
from fedbb.records import IntArray

Unreadable = Literal["refuse", "skip"]
Pixels = npt.NDArray[np.uint8]

_NAMED = 5
_BATCH = 64


@dataclass(frozen=True, eq=False)
class Gallery:
    """Images (N, channels, height, width), the rows they belong to, and names of those skipped."""

    images: Pixels
    rows: IntArray
    skipped: tuple[str, ...]

    def notes(self) -> tuple[str, ...]:
        """Return what the log should say of the skipped ones."""
        if not self.skipped:
            return ()
        more = ", …" if len(self.skipped) > _NAMED else ""
        named = ", ".join(self.skipped[:_NAMED])
        return (f"{len(self.skipped)} unreadable images skipped: {named}{more}",)


@dataclass(frozen=True)
class Request:
    """Images to decode: names in a bundle, the form they get, and who wants to know.

    `place` says for messages where the user named the image of a row; `progress` is told how many
    images are done, and how many there are.
    """

    bundle: Bundle
    names: tuple[str, ...]
    form: Form
    unreadable: Unreadable = "refuse"
    place: Callable[[int], str] | None = None
    progress: Progress | None = None


def read_gallery(request: Request) -> Gallery:
    """Decode all images into memory."""
    skipped: list[int] = []
    found = dict(decode(request, skipped))
    rows = sorted(found)
    names = tuple(request.names[row] for row in sorted(skipped))
    return Gallery(np.stack([found[row] for row in rows]), np.array(rows, np.int64), names)


def decode(request: Request, skipped: list[int]) -> Iterator[tuple[int, Pixels]]:
    """Yield (row, image) in the order of storage; rows that are skipped are added to the list.

    DataError names the first image that is refused, or says that there is none at all.
    """
    shape: tuple[int, ...] | None = None
    for done, (row, outcome) in enumerate(_outcomes(request), start=1):
        if shape is not None and isinstance(outcome, np.ndarray) and outcome.shape != shape:
            outcome = _misfit(request.names[row], outcome.shape, shape)
        if isinstance(outcome, DataError):
            _refuse_or_skip(request, row, outcome, skipped)
        else:
            shape = outcome.shape
            yield row, outcome
        if request.progress is not None and (done % _BATCH == 0 or done == len(request.names)):
            request.progress(done, len(request.names))
    if shape is None:
        raise DataError(
            f"{request.bundle.path}: none of its {len(request.names)} images can be read"
        )


def _outcomes(request: Request) -> Iterator[tuple[int, Pixels | DataError]]:
    """Yield each row with its image, or with what is wrong with it."""
    contents = request.bundle.contents(request.names)
    missing = set(range(len(request.names)))
    # Pillow decodes without Python's lock, so threads can work side by side. Processes were slower
    # when measured, and need a main module that can be imported, which a user's script need not be.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while batch := list(islice(contents, _BATCH)):
            with tolerance():
                outcomes = list(pool.map(partial(_attempt, request), batch))
            rows = [row for row, _ in batch]
            missing.difference_update(rows)
            yield from zip(rows, outcomes, strict=True)
    for row in sorted(missing):
        yield row, DataError(f"image {request.names[row]} is not in {request.bundle.path}")


def _attempt(request: Request, item: tuple[int, Path | bytes]) -> Pixels | DataError:
    row, content = item
    try:
        return decode_picture(content, request.bundle.path / request.names[row], request.form)
    except DataError as error:
        return error


def _refuse_or_skip(request: Request, row: int, error: DataError, skipped: list[int]) -> None:
    if request.unreadable == "skip":
        skipped.append(row)
        return
    prefix = f"{request.place(row)}: " if request.place is not None else ""
    raise DataError(f"{prefix}{error}") from error


def _misfit(name: str, shape: tuple[int, ...], first: tuple[int, ...]) -> DataError:
    return DataError(
        f"image {name} has {shape[1]} × {shape[2]} pixels, the first one {first[1]} × {first[2]}; "
        "set the option size to bring all to one"
    )
