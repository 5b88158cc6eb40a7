"""The advice of an inspection as a recipe, or the part of one that is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedbb.analysis.advice import Advice


def write_fragment(advice: Advice, data: Mapping[str, Any] | None = None) -> str:
    """Return TOML with the method and, where it is known, the data; `fedbb run` takes both."""
    reasons = [f"# {_one_line(reason)}" for reason in advice.reasons]
    method = ["[method]", 'name = "fedbb"', f"options = {toml_value(advice.options)}"]
    if data is None:
        note = "# Put this into a recipe in the place of its [method]."
        return "\n".join([*reasons, note, "", *method, ""])
    lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in data.items()]
    return "\n".join([*reasons, "", "[data]", *lines, "", *method, ""])


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it; JSON's texts are TOML's, except for one control sign.

    >>> toml_value({"beta": 0.9, "names": ["a", "b c"]})
    '{ beta = 0.9, names = ["a", "b c"] }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inner = (f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(inner)} }}"
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


def _one_line(text: str) -> str:
    return " ".join(text.split())
