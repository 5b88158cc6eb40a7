"""JSON with one encoding per value, so that equal records are equal bytes to hash and sign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fedbb.errors import RefusedError


def canonical_json(value: Any) -> bytes:
    r"""Return a value as JSON with sorted keys, without spaces, in ASCII.

    >>> canonical_json({"b": [1, 2], "a": "µ"})
    b'{"a":"\\u00b5","b":[1,2]}'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def parse_canonical(data: bytes, what: str) -> Any:
    """Return the value in these bytes; refuse any encoding that is not canonical."""
    try:
        value = json.loads(data)
        if canonical_json(value) == data:
            return value
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{what} is not JSON: {type(error).__name__}") from None
    raise RefusedError(f"{what} is not in canonical JSON")


def parse_record(data: bytes, what: str, keys: frozenset[str]) -> Mapping[str, Any]:
    """Return the object in these bytes, which must have exactly these keys."""
    value = parse_canonical(data, what)
    if not isinstance(value, dict) or value.keys() != keys:
        raise RefusedError(f"{what} must have the fields {', '.join(sorted(keys))}, no others")
    return value


def read_integer(value: Any, what: str, least: int = 0, most: int = 2**53) -> int:
    """Return an integer within bounds; refuse anything else."""
    if type(value) is not int or not least <= value <= most:
        raise RefusedError(f"{what} must be an integer from {least} to {most}")
    return value


def read_text(value: Any, what: str) -> str:
    """Return a string; refuse anything else."""
    if not isinstance(value, str):
        raise RefusedError(f"{what} must be a string")
    return value


def read_flag(value: Any, what: str) -> bool:
    """Return true or false; refuse anything else."""
    if not isinstance(value, bool):
        raise RefusedError(f"{what} must be true or false")
    return value


def read_clients(value: Any, what: str) -> tuple[int, ...]:
    """Return a list of distinct clients in ascending order; refuse anything else."""
    if not isinstance(value, list):
        raise RefusedError(f"{what} must be a list of clients")
    clients = tuple(read_integer(entry, f"a client of {what}") for entry in value)
    if any(one >= two for one, two in pairwise(clients)):
        raise RefusedError(f"{what} must name each client once, in ascending order")
    return clients


def read_hex(value: Any, what: str, length: int | None = None) -> bytes:
    """Return the bytes of a hexadecimal string; refuse anything else."""
    try:
        content = bytes.fromhex(read_text(value, what))
    except ValueError:
        raise RefusedError(f"{what} must be in hexadecimal") from None
    if content.hex() != value or (length is not None and len(content) != length):
        raise RefusedError(f"{what} must be {length} bytes in hexadecimal")
    return content
