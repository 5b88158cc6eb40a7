"""The images that a CSV file names, all of one form; unreadable ones are refused or skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedbb.data.csv_table import Sheet
from fedbb.data.images.archive import Folder
from fedbb.data.images.cache import decode_once
from fedbb.data.images.decode import Form
from fedbb.data.images.loader import Gallery, Request, Unreadable, read_gallery
from fedbb.data.source import Source
from fedbb.errors import DataError

MANY = 2000
"""From so many images on, decoded ones are kept in the cache folder."""


def request_images(
    sheet: Sheet, column: str, folder: Path, form: Form, policy: Unreadable
) -> Request:
    """Return the request for the files that a column names; it knows their lines."""
    names = tuple(_file_names(sheet, column))
    return Request(Folder(folder), names, form, policy, lambda row: sheet.place(row, column))


def read_images(request: Request, source: Source) -> Gallery:
    """Decode the images; where they are many, only once."""
    request = replace(request, progress=source.progress)
    if len(request.names) < MANY:
        return read_gallery(request)
    return decode_once(request, source.decoded)


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
