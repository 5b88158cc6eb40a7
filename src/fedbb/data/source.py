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

    `root` is the folder of downloads (None: the cache folder), `path` the user's file. `seed`
    decides what a loader draws, such as a test share; it is the data's own, so that runs which
    differ in their seed still share one test set. `progress` hears of images being decoded: how
    many are done, and how many there are.
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
    def decoded(self) -> Path:
        """The folder that holds decoded images of this data set."""
        return self.folder / "decoded"


@dataclass(frozen=True)
class NoOptions:
    """For data sets that leave nothing to choose."""


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
