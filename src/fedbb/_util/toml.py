"""Writing TOML, which the standard library only reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def to_toml(values: Mapping[str, Any]) -> str:
    """Return nested tables as TOML: values first, then each table, inner tables in one line.

    Args:
        values: Texts, numbers, truth values, lists and tables; keys whose value is None are left
            out, because TOML knows no such value.

    Raises:
        ValueError: A number is not finite.

    >>> print(to_toml({"seed": 1, "local": {"lr": 0.1, "clip": None}}), end="")
    seed = 1
    <BLANKLINE>
    [local]
    lr = 0.1
    """
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    blocks = ["".join(_lines(plain))]
    blocks += [f"[{toml_key(key)}]\n{''.join(_lines(table))}" for key, table in tables.items()]
    return "\n".join(block for block in blocks if block)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None:
            yield f"{toml_key(key)} = {toml_value(value)}\n"


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it; JSON's texts are TOML's, except for one control sign.

    >>> toml_value({"beta": 0.9, "names": ["a", "b c"]})
    '{ beta = 0.9, names = ["a", "b c"] }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inner = [
            f"{toml_key(key)} = {toml_value(item)}"
            for key, item in value.items()
            if item is not None
        ]
        return f"{{ {', '.join(inner)} }}" if inner else "{}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a recipe holds no {value}")
    return repr(value)


def toml_key(key: str) -> str:
    """Return a key, in quotes unless it is a plain word."""
    plain = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if plain else toml_value(key)
