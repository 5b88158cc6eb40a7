"""Settings laid over settings: whole tables merged, or single ones put in by dotted name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from fedbb.errors import RecipeError

Values = dict[str, Any]


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """Return the settings of both, table by table; where both have a value, that of `over`.

    >>> merge({"local": {"lr": 0.1, "epochs": 2}}, {"local": {"lr": 0.2}})
    {'local': {'lr': 0.2, 'epochs': 2}}
    """
    merged = copy.deepcopy(dict(under))
    for key, value in over.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = merge(before, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def put(values: Mapping[str, Any], settings: Mapping[str, Any]) -> Values:
    """Return the values with settings such as {"local.lr": 0.2} put in, each replacing what was.

    A table replaces the whole table before it, so that {"data.options": {}} empties one.
    """
    changed = copy.deepcopy(dict(values))
    for name, value in settings.items():
        *tables, last = name.split(".")
        place = changed
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise RecipeError(f"{name} cannot be set: {table} is a value, not a table")
        place[last] = copy.deepcopy(value)
    return changed
