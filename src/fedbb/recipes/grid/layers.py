"""A grid's file with its overlays: which combinations there are, and the settings of each."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbb.errors import RecipeError
from fedbb.recipes.grid.file import AxisSpec, GridSpec, OverlaySpec
from fedbb.recipes.reader import read_values

Values = dict[str, Any]
Combination = frozenset[tuple[str, str]]
OWN = ("seed", "name")
"""Settings that a grid gives its cells itself."""


@dataclass(frozen=True)
class Layers:
    """A grid, what is laid over it, and settings laid over every cell."""

    spec: GridSpec
    overlays: Sequence[OverlaySpec]
    settings: Sequence[str] = ()

    def labels(self) -> dict[str, tuple[str, ...]]:
        """Return the labels of each axis."""
        return labels_of(self.spec)

    def combinations(self) -> Iterator[dict[str, str]]:
        """Yield a label for every axis, in the grid's order."""
        labels = self.labels()
        for chosen in itertools.product(*labels.values()):
            yield dict(zip(labels, chosen, strict=True))

    def skipped(self) -> dict[Combination, str]:
        """Return why each combination that does not exist is left out."""
        skips = [skip for spec in (self.spec, *self.overlays) for skip in spec.skip]
        return {
            frozenset(at.items()): skip.why
            for at in self.combinations()
            for skip in skips
            if skip.where.items() <= at.items()
        }

    def seeds(self, asked: Sequence[int] | None) -> Sequence[int]:
        """Return the seeds of the cells; a grid that has none of its own stays without."""
        if not self.spec.seeds:
            return ()
        given = [overlay.seeds for overlay in self.overlays if overlay.seeds is not None]
        return [self.spec.seeds, *given][-1] if asked is None else asked

    def values(self, at: Mapping[str, str], seed: int) -> Values:
        """Return the settings of a cell."""
        values: Values = {}
        for spec in (self.spec, *self.overlays):
            values = merge(values, spec.recipe)
        for axis in self.spec.axis:
            for spec in (self.spec, *self.overlays):
                values = put(values, _settings(spec.axis, axis.name, at[axis.name]))
        for overlay in self.overlays:
            values = put(values, overlay.set)
        values = read_values(self.settings, values)
        for name in OWN:
            if name in values:
                raise RecipeError(
                    f"{name} is given by the grid itself; seeds = […] lists the seeds"
                )
        return {**values, "seed": seed}


def labels_of(spec: GridSpec) -> dict[str, tuple[str, ...]]:
    """Return the labels of each axis of a grid."""
    return {axis.name: tuple(value.label for value in axis.value) for axis in spec.axis}


def _settings(axes: Sequence[AxisSpec], name: str, label: str) -> Values:
    found = (
        value.set
        for axis in axes
        if axis.name == name
        for value in axis.value
        if value.label == label
    )
    return {key: value for settings in found for key, value in settings.items()}


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
