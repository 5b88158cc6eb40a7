"""JSON in one spelling only, so that equal records are equal bytes and can be hashed and signed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fedbb.errors import RefusedError


def spell(value: Any) -> bytes:
    r"""Return a value as JSON: keys sorted, no spaces, ASCII.

    >>> spell({"b": [1, 2], "a": "µ"})
    b'{"a":"\\u00b5","b":[1,2]}'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def parse(data: bytes, what: str) -> Any:
    """Return the value that these bytes spell, or refuse any other spelling of it."""
    try:
        value = json.loads(data)
        if spell(value) == data:
            return value
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{what} is not JSON: {type(error).__name__}") from None
    raise RefusedError(f"{what} is not in the spelling agreed on")


def parse_record(data: bytes, what: str, keys: frozenset[str]) -> Mapping[str, Any]:
    """Return the object with exactly these keys that the bytes spell."""
    value = parse(data, what)
    if not isinstance(value, dict) or value.keys() != keys:
        raise RefusedError(f"{what} must have the fields {', '.join(sorted(keys))}, no others")
    return value


def a_number(value: Any, what: str, least: int = 0, most: int = 2**53) -> int:
    """Return a whole number within bounds, or refuse what is something else."""
    if type(value) is not int or not least <= value <= most:
        raise RefusedError(f"{what} must be a whole number from {least} to {most}")
    return value


def a_text(value: Any, what: str) -> str:
    """Return a text, or refuse what is something else."""
    if not isinstance(value, str):
        raise RefusedError(f"{what} must be a text")
    return value


def a_flag(value: Any, what: str) -> bool:
    """Return true or false, or refuse what is something else."""
    if not isinstance(value, bool):
        raise RefusedError(f"{what} must be true or false")
    return value


def some_clients(value: Any, what: str) -> tuple[int, ...]:
    """Return a list of clients in rising order, none of them twice, or refuse it."""
    if not isinstance(value, list):
        raise RefusedError(f"{what} must be a list of clients")
    clients = tuple(a_number(entry, f"a client of {what}") for entry in value)
    if any(one >= two for one, two in pairwise(clients)):
        raise RefusedError(f"{what} must name each client once, in rising order")
    return clients


def some_bytes(value: Any, what: str, length: int | None = None) -> bytes:
    """Return bytes written in hexadecimal, or refuse what is something else."""
    try:
        content = bytes.fromhex(a_text(value, what))
    except ValueError:
        raise RefusedError(f"{what} must be in hexadecimal") from None
    if content.hex() != value or (length is not None and len(content) != length):
        raise RefusedError(f"{what} must be {length} bytes in hexadecimal")
    return content
