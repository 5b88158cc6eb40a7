"""Values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np


def finite_or_none(value: Any) -> Any:
    """Return a value made of dictionaries, lists, texts and finite numbers only.

    Args:
        value: A number, text, array, record or mapping, nested at will.

    Returns:
        The same content; NaN and infinity, which JSON has no words for, become None.

    >>> finite_or_none({"mean": 0.5, "deviation": float("nan"), "seeds": (0, 1)})
    {'mean': 0.5, 'deviation': None, 'seeds': [0, 1]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: finite_or_none(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray | np.generic):
        return finite_or_none(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): finite_or_none(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
