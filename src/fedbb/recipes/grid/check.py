"""What the parts of a grid's files must agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.recipes.grid.file import GridSpec, OverlaySpec, SkipSpec
from fedbb.recipes.grid.layers import labels_of
from fedbb.recipes.spec import EvaluationSpec

METRICS = get_args(get_args(EvaluationSpec.model_fields["metric"].annotation)[0])

Labels = Mapping[str, Sequence[str]]


def check_grid(spec: GridSpec) -> None:
    """Refuse a grid whose axes, table and exceptions do not fit each other."""
    labels = labels_of(spec)
    _check_once("axis", [axis.name for axis in spec.axis])
    for name, known in labels.items():
        _check_once(f"label of axis {name}", known)
    check_seeds(spec.seeds)
    _check_table(spec, labels)
    if spec.seeds:
        for metric in spec.metrics:
            if metric not in METRICS:
                raise RecipeError(f"metric {metric!r} is unknown{nearest(metric, METRICS)}")
    _check_skips(spec.skip, labels)


def check_overlay(overlay: OverlaySpec, spec: GridSpec) -> None:
    """Refuse an overlay that names axes or labels the grid does not have."""
    labels = labels_of(spec)
    _check_once("axis", [axis.name for axis in overlay.axis])
    for axis in overlay.axis:
        for value in axis.value:
            check_place({axis.name: value.label}, labels)
        _check_once(f"label of axis {axis.name}", [value.label for value in axis.value])
    check_seeds(overlay.seeds or ())
    _check_skips(overlay.skip, labels)


def check_place(at: Mapping[str, str], labels: Labels) -> None:
    """Refuse an axis or a label on it that the grid does not have."""
    for axis, label in at.items():
        if axis not in labels:
            raise RecipeError(f"axis {axis!r} is unknown{nearest(axis, labels)}")
        if label not in labels[axis]:
            raise RecipeError(f"axis {axis} has no label {label!r}{nearest(label, labels[axis])}")


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse a seed that is given twice."""
    _check_once("seed", [str(seed) for seed in seeds])


def _check_table(spec: GridSpec, labels: Labels) -> None:
    shown = [spec.rows, *spec.columns]
    for axis in shown:
        if axis not in labels:
            raise RecipeError(f"axis {axis!r} of rows or columns is unknown{nearest(axis, labels)}")
    _check_once("axis of rows and columns", shown)
    hidden = [axis for axis in labels if axis not in shown]
    if hidden:
        raise RecipeError(f"axis {hidden[0]} must be among rows or columns")


def _check_skips(skips: Iterable[SkipSpec], labels: Labels) -> None:
    for skip in skips:
        check_place(skip.where, labels)


def _check_once(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"{what} {name!r} is given more than once")
