"""Labels of an .npz file; of its arrays only those that are asked for are read."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb.analysis.label_columns import Layout
from fedbb.analysis.label_table import LabelTable
from fedbb.analysis.labels import from_array
from fedbb.analysis.tally import name_clients
from fedbb.errors import DataError

_FAULTS = (
    OSError,
    ValueError,
    LookupError,
    EOFError,
    MemoryError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read_arrays(path: Path | str, layout: Layout | None = None) -> LabelTable:
    """Read `labels`, `classes` if there, and the arrays that the layout calls clients, patient."""
    path, layout = Path(path), layout or Layout()
    label = layout.labels[0] if layout.labels else "labels"
    wanted = [name for name in (label, layout.clients, layout.patient) if name]
    arrays = _load(path, [*wanted, "classes"])
    for name in wanted:
        if name not in arrays:
            raise DataError(f"{path}: no array {name!r}" + nearest(name, _names(path)))
    classes = arrays["classes"].astype(str).tolist() if "classes" in arrays else None
    try:
        labels = from_array(arrays[label], layout.task, classes)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    for name in wanted[1:]:
        if arrays[name].shape != (len(labels),):
            raise DataError(
                f"{path}: {name} has shape {arrays[name].shape}; {len(labels)} labels need as many"
            )
    names, owners = name_clients(arrays[layout.clients]) if layout.clients else (None, None)
    patients = name_clients(arrays[layout.patient])[1] if layout.patient else None
    return LabelTable(labels, layout, names, owners, patients)


def _load(path: Path, names: list[str]) -> dict[str, npt.NDArray[Any]]:
    """Return those of the arrays that the file has; pickled ones are refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in dict.fromkeys(names) if name in archive.files}
    except (*_FAULTS, AttributeError, TypeError) as error:
        raise DataError(f"cannot read {path} as .npz: {error}") from error


def _names(path: Path) -> list[str]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return list(archive.files)
