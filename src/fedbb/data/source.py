"""Where a data set comes from: its name, files and options, all that a loader may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedbb._util.names import nearest
from fedbb._util.validation import explain_validation_error
from fedbb.data.download import Progress, cache_folder
from fedbb.errors import DataError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


@dataclass(frozen=True)
class Source:
    """A data set by name, with the user's own file and options where it takes them.

    Attributes:
        name: name in the catalogue.
        root: folder of downloads; None is the cache folder.
        path: the user's own file or folder.
        seed: of what a loader draws, such as a test share. It belongs to the data, so that runs
            with different seeds have the same test set.
        options: options of the loader.
        progress: called with the number of decoded images and the number of all.
    """

    name: str
    root: Path | None = None
    path: Path | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = field(default=None, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """The folder that holds the downloads of this data set."""
        return (self.root or cache_folder()) / self.name

    @property
    def image_cache(self) -> Path:
        """The folder of this data set's decoded images."""
        return self.folder / "decoded"


@dataclass(frozen=True)
class NoOptions:
    """For data sets without options."""


def read_options(kind: type[Options], source: Source) -> Options:
    """Return the options of a source as a record; unknown keys and wrong types are refused."""
    known = [field.name for field in fields(kind)]
    for key in source.options:
        if key not in known:
            raise DataError(
                f"{source.name} data: option {key!r} is unknown" + nearest(str(key), known)
            )
    try:
        return TypeAdapter(kind).validate_python(dict(source.options))
    except ValidationError as error:
        reason = explain_validation_error(error, kind)
        raise DataError(f"{source.name} data: option {reason}") from error
