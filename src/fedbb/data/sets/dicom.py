"""A user's own DICOM images: a CSV file of labels beside a folder of files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedbb.data.csv_table import read_csv
from fedbb.data.dataset import Dataset
from fedbb.data.images.archive import Folder
from fedbb.data.images.decode import ImageSource, Request, as_size, tolerance
from fedbb.data.images.dicom import DicomFormat, Window, import_pydicom, read_header
from fedbb.data.sets.table import TableOptions, load_rows, read_file_names
from fedbb.data.source import Source, read_options
from fedbb.errors import DataError

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
