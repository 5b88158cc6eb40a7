"""The files a grid is read from: the grid itself, and overlays that change its scale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from fedbb._util.constraints import Seed
from fedbb._util.files import parse_toml
from fedbb._util.validation import explain_validation_error
from fedbb.errors import RecipeError
from fedbb.recipes.spec import Section

Text = Annotated[str, Field(min_length=1)]


class AxisValueSpec(Section):
    """One value of an axis: what tables call it, and the settings it stands for."""

    label: Text
    set: dict[str, Any] = Field(default_factory=dict)


class AxisSpec(Section):
    """One axis of a grid, with its values in the order tables show them."""

    name: Text
    value: Annotated[list[AxisValueSpec], Field(min_length=1)]


class SkipSpec(Section):
    """Combinations that do not exist, by axis and label, and the reason."""

    where: Annotated[dict[str, str], Field(min_length=1)]
    why: Text


class LayerSpec(Section):
    """What a grid and an overlay have in common."""

    recipe: dict[str, Any] = Field(default_factory=dict)
    axis: list[AxisSpec] = Field(default_factory=list)
    skip: list[SkipSpec] = Field(default_factory=list)


class GridSpec(LayerSpec):
    """A grid as its file writes it."""

    title: Text
    caption: str = ""
    source: str | None = None
    seeds: list[Seed]
    rows: Text
    columns: list[Text] = Field(default_factory=list)
    metrics: Annotated[list[Text], Field(min_length=1)]
    chosen: Literal["best", "final"] = "best"


class OverlaySpec(LayerSpec):
    """What an overlay changes; its `set` comes after the axes, over every cell.

    `equal_cells` allows cells of different labels to be the same run, as when a small scale
    replaces two data sets by one.
    """

    title: Text | None = None
    caption: str | None = None
    note: Text | None = None
    seeds: list[Seed] | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    equal_cells: bool = False


class PrintedNumber(Section):
    """One printed number, in percent as printed, at the labels of its grid."""

    at: dict[str, str]
    metric: Text
    mean: float
    spread: float | None = None
    note: str | None = None


class PrintedNumbers(Section):
    """The printed numbers of a table."""

    number: list[PrintedNumber]


Spec = TypeVar("Spec", bound=BaseModel)


def read_spec(path: Path, kind: type[Spec]) -> Spec:
    """Return what a TOML file holds, checked against this kind of specification."""
    try:
        values = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RecipeError(f"{path} is no valid TOML: {error}") from error
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = explain_validation_error(error, kind, separator=" ")
        raise RecipeError(f"{path}: {problems}") from error
