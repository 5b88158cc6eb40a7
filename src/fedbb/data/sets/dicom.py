"""A user's own DICOM images: a CSV file of labels beside a folder of files.

Pixels become 8 bits: rescaled, windowed, and dark on the same side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from fedbb._util.files import explain_error
from fedbb.data.csv_table import read_csv
from fedbb.data.dataset import Dataset
from fedbb.data.images.archive import Folder
from fedbb.data.images.decode import (
    FAULTS,
    ImageFormat,
    ImageSource,
    Pixels,
    Request,
    as_size,
    convert_image,
    tolerance,
)
from fedbb.data.sets.table import TableOptions, load_rows, read_file_names
from fedbb.data.source import Source, read_options
from fedbb.errors import DataError
from fedbb.records import FloatArray

Window = Literal["file", "full"] | tuple[float, float]
"""The values that become black to white: those that the file names, all, or (center, width)."""

_DEFLATED = b"1.2.840.10008.1.2.1.99"
_COLOR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


@dataclass(frozen=True)
class DicomFormat:
    """The format DICOM images are converted to.

    Attributes:
        channels: 1 for grey, 3 for color.
        size: height and width, or None to keep them.
        window: the values that become black to white.
        kind: part of the key in the cache.
    """

    channels: int
    size: tuple[int, int] | None
    window: Window = "file"
    kind: str = "dicom"

    def decode(self, content: Path | bytes, name: Path) -> Pixels:
        """Return a file, or the content of one, as (channels, height, width)."""
        pydicom = import_pydicom()
        try:
            file = _parse(pydicom, content)
            image = Image.fromarray(read_pixels(file, self.window))
        except pydicom.errors.InvalidDicomError as error:
            raise DataError(f"image {name} is not a DICOM file") from error
        except _faults(pydicom) as error:
            raise DataError(
                f"image {name} cannot be read as DICOM: {explain_error(error)}"
            ) from error
        return convert_image(image, ImageFormat(self.channels, self.size))


def read_pixels(file: Any, window: Window) -> Pixels:
    """Return the pixels of a parsed DICOM file: (height, width), or (height, width, 3) in color.

    Raises:
        ValueError: the file has several frames, or a kind of pixels that is not read.
    """
    from pydicom.pixels.processing import apply_modality_lut
    from pydicom.pixels.utils import pixel_array

    if int(file.get("NumberOfFrames") or 1) > 1:
        raise ValueError(
            f"it has {file.NumberOfFrames} frames, and an image is one; extract a frame first"
        )
    number = int(file.Rows) * int(file.Columns)
    if number > (Image.MAX_IMAGE_PIXELS or number):
        raise ValueError(f"it has {number:,} pixels; allowed: {Image.MAX_IMAGE_PIXELS:,}")
    kind = str(file.PhotometricInterpretation)
    if kind in _COLOR:
        pixels = np.asarray(pixel_array(file))
        if pixels.dtype != np.uint8:
            raise ValueError(f"it is in color with {pixels.dtype}; 8 bits are read")
        return pixels
    if kind not in ("MONOCHROME1", "MONOCHROME2"):
        raise ValueError(f"its pixels are {kind}; MONOCHROME1, MONOCHROME2 and RGB are read")
    values = np.asarray(apply_modality_lut(pixel_array(file), file), dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("its rescaled pixels are NaN or infinite")
    shares = apply_window(values, *_window(file, window, values))
    if kind == "MONOCHROME1":
        shares = 1.0 - shares
    return np.rint(255.0 * shares).astype(np.uint8)


def apply_window(
    values: FloatArray, center: float, width: float, function: str = "LINEAR"
) -> FloatArray:
    """Return values as shares from 0 (black) to 1 (white), as DICOM PS3.3 C.11.2.1.2 defines it.

    >>> apply_window(np.array([-1.0, 0.0, 1.0, 2.0]), center=1.5, width=2).tolist()
    [0.0, 0.0, 0.5, 1.0]

    Args:
        values: pixels after rescaling.
        center: window center.
        width: window width; at least 1, or above 0 for other functions than LINEAR.
        function: "LINEAR", "LINEAR_EXACT" or "SIGMOID".

    Raises:
        ValueError: a width or a function that is not allowed.
    """
    if width < 1 if function == "LINEAR" else width <= 0:
        raise ValueError(f"its window width is {width}")
    if function == "SIGMOID":
        with np.errstate(over="ignore"):  # far below the window the share is 0
            return np.asarray(1.0 / (1.0 + np.exp(-4.0 * (values - center) / width)))
    if function == "LINEAR":
        # Of width 1 all values are either below or above.
        center, width = center - 0.5, max(width - 1.0, 1e-12)
    elif function != "LINEAR_EXACT":
        raise ValueError(f"its window function is {function}")
    return np.clip((values - center) / width + 0.5, 0.0, 1.0)


def _window(file: Any, window: Window, values: FloatArray) -> tuple[float, float, str]:
    """Return center, width and function of the window to apply."""
    if isinstance(window, tuple):
        return *window, "LINEAR"
    named = window == "file" and "WindowCenter" in file and "WindowWidth" in file
    if named:
        center, width = (_first(file[key].value) for key in ("WindowCenter", "WindowWidth"))
        if center is not None and width is not None:
            return center, width, str(file.get("VOILUTFunction") or "LINEAR")
    low, high = float(values.min()), float(values.max())
    return (low + high) / 2, max(high - low, 1e-12), "LINEAR_EXACT"


def _first(value: Any) -> float | None:
    """Return a number, the first of several, or None where there is none."""
    if value is None or isinstance(value, str):
        return float(value) if value else None
    if isinstance(value, Sequence):
        return float(value[0]) if len(value) else None
    return float(value)


def read_header(path: Path, keys: Sequence[str]) -> list[str]:
    """Return elements of a file's header as texts, without its pixels; a missing one is empty."""
    pydicom = import_pydicom()
    try:
        file = _parse(pydicom, path, stop_before_pixels=True, specific_tags=list(keys))
        # Elements are converted, and may fail, only here.
        return [str(file.get(key) or "").strip() for key in keys]
    except _faults(pydicom) as error:
        raise DataError(f"image {path} cannot be read as DICOM: {explain_error(error)}") from error


def _parse(pydicom: Any, content: Path | bytes, **how: Any) -> Any:
    """Return a parsed file, whose pixels are still to be decoded."""
    with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        # pydicom would inflate such a file whole, whatever its size.
        if _DEFLATED in file.read(1024):
            raise ValueError("it is deflated as a whole; save it in another transfer syntax")
        file.seek(0)
        return pydicom.dcmread(file, **how)


def _faults(pydicom: Any) -> tuple[type[Exception], ...]:
    """Return what damaged files make pydicom raise; NotImplementedError is a RuntimeError."""
    own = (pydicom.errors.InvalidDicomError, pydicom.errors.BytesLengthException)
    return (*FAULTS, *own, AttributeError, RuntimeError)


def import_pydicom() -> Any:
    """Return the module pydicom; DataError says how to install it."""
    try:
        import pydicom
    except ImportError as error:
        raise DataError('DICOM files need pydicom: pip install "fedbb[dicom]"') from error
    return pydicom


HEADER = ("PatientID", "StudyInstanceUID")
"""Elements of the files' headers that become columns."""


@dataclass(frozen=True)
class DicomOptions(TableOptions):
    """How to read the CSV file and its DICOM files; what is not said is as in `TableOptions`.

    Attributes:
        channels: 1 for grey, 3 for color.
        group: column of which no value is in both parts, by default the patient of the header.
        window: the values that become black to white: "file" for the window that each file names,
            or all of its values where it names none; "full" for all of its values; or [center,
            width].
    """

    channels: Literal[1, 3] = 1
    group: str | None = "PatientID"
    window: Window = "file"


def load(source: Source) -> Dataset:
    """Return the data set of a CSV file and its DICOM files."""
    options = read_options(DicomOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the CSV file to read")
    import_pydicom()
    if isinstance(options.window, tuple) and options.window[1] < 1:
        raise DataError(f"{source.name} data: window is {options.window}; its width is at least 1")
    table = read_csv(source.path)
    column = options.image_column
    archive = Folder(options.images or source.path.parent)
    names = tuple(read_file_names(table, column, archive.path))
    wanted = DicomFormat(options.channels, as_size(options.size, source.name), options.window)
    images = ImageSource(archive, wanted, options.unreadable)
    request = Request(images, names, lambda row: table.place(row, column))

    def header_columns(rows: list[int]) -> dict[str, np.ndarray]:
        with tolerance():
            found = [read_header(archive.path / names[row], HEADER) for row in rows]
        for row, values in zip(rows, found, strict=True):
            if options.group in HEADER and not values[HEADER.index(options.group)]:
                raise DataError(
                    f"{request.place(row) if request.place else names[row]}: the file has no "
                    f"{options.group}; set group to another column, or split_column"
                )
        return dict(zip(HEADER, np.array(found, dtype=np.str_).T, strict=True))

    return load_rows(source, table, options, request, header_columns, HEADER)
