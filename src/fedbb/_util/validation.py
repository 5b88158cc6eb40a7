"""What pydantic found wrong with a user's values, in words that name the keys the user wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from fedbb._util.names import nearest

UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def explain_validation_error(
    error: ValidationError, record: type[Any], *, separator: str = "."
) -> str:
    """Return a clause for each problem: the key, what is wrong with it, and what is allowed.

    Args:
        error: What pydantic raised.
        record: The model or dataclass that was validated; it knows the names that are allowed.
        separator: Text between the parts of a key. Entries of lists are counted from one.

    Returns:
        The clauses, with a semicolon between two.
    """
    return "; ".join(_explain(dict(problem), record, separator) for problem in error.errors())


def _explain(problem: Mapping[str, Any], record: type[Any], separator: str) -> str:
    place: Sequence[str | int] = problem["loc"]
    key = separator.join(str(part + 1) if isinstance(part, int) else part for part in place)
    if problem["type"] in UNKNOWN:
        names = [part for part in place if isinstance(part, str)]
        return f"{key} is unknown{nearest(names[-1], _known(record, names[:-1]))}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{key} = {problem['input']!r} is refused: {message[:1].lower()}{message[1:]}"


def _known(record: type[Any], tables: Sequence[str]) -> list[str]:
    """Return the keys of the table that these names lead to."""
    for table in tables:
        record = _inner(_annotations(record)[table])
    return list(_annotations(record))


def _annotations(record: type[Any]) -> dict[str, Any]:
    if is_dataclass(record):
        hints = get_type_hints(record)
        return {field.name: hints[field.name] for field in fields(record)}
    return {name: field.annotation for name, field in record.model_fields.items()}


def _inner(annotation: Any) -> type[Any]:
    """Return the record in an annotation such as list[Record] or Record | None."""
    while not _is_record(annotation):
        annotation = get_args(annotation)[0]
    found: type[Any] = annotation
    return found


def _is_record(annotation: Any) -> bool:
    if not isinstance(annotation, type):
        return False
    return is_dataclass(annotation) or issubclass(annotation, BaseModel)
