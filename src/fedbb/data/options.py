"""Options of a loader: what the user wrote, checked into the loader's own frozen record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedbb._util.names import nearest
from fedbb.data.source import Source
from fedbb.errors import DataError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


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
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"{source.name} data: option {place} is {first['input']!r}; {first['msg']}"
        ) from error
