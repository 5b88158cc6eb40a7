"""Many recipes from one file: axes of settings, crossed with each other and with seeds.

A grid file and its overlays are laid over each other in this order, the later over the earlier:

1. `[recipe]` of the grid, then of each overlay, merged table by table;
2. for each axis in the grid's order, the `set` of the cell's value there, then what overlays `set`
   for that value; a `set` puts whole values in by dotted name, so `"data.options" = {}` empties;
3. the top-level `set` of each overlay, then settings of the command line.

Overlays may also give `title`, `caption`, `note`, more `[[skip]]`, `seeds` that replace those
before, and `equal_cells = true` where they make two cells the same run. A grid whose own file says
`seeds = []` has no cells, whatever overlays say: a table whose numbers come from elsewhere.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError

from fedbb._util.constraints import Seed
from fedbb._util.files import explain_error, parse_toml
from fedbb._util.names import nearest
from fedbb._util.validation import explain_validation_error
from fedbb.errors import FedbbError, RecipeError
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe, read_values
from fedbb.recipes.spec import EvaluationSpec, Recipe, Section

Text = Annotated[str, Field(min_length=1)]


Spec = TypeVar("Spec", bound=BaseModel)
Values = dict[str, Any]
Combination = frozenset[tuple[str, str]]
OWN = ("seed", "name")
"""Settings that a grid gives its cells itself."""

METRICS = get_args(get_args(EvaluationSpec.model_fields["metric"].annotation)[0])
Labels = Mapping[str, Sequence[str]]
LONGEST = 32
"""Characters of a label that a name keeps; the hash at its end distinguishes the rest."""


class AxisValueSpec(Section):
    """One value of an axis.

    Attributes:
        label: What tables call it.
        set: The settings it stands for, by dotted key.
    """

    label: Text
    set: dict[str, Any] = Field(default_factory=dict)


class AxisSpec(Section):
    """One axis of a grid.

    Attributes:
        name: The name of the axis.
        value: Its values, in the order tables show them.
    """

    name: Text
    value: Annotated[list[AxisValueSpec], Field(min_length=1)]


class SkipSpec(Section):
    """Combinations that do not exist.

    Attributes:
        where: Labels of the combination by axis.
        why: The reason.
    """

    where: Annotated[dict[str, str], Field(min_length=1)]
    why: Text


class LayerSpec(Section):
    """What a grid and an overlay have in common.

    Attributes:
        recipe: Settings of all cells, as in a recipe.
        axis: The axes; a grid has one cell for each combination of their values.
        skip: Combinations that do not exist.
    """

    recipe: dict[str, Any] = Field(default_factory=dict)
    axis: list[AxisSpec] = Field(default_factory=list)
    skip: list[SkipSpec] = Field(default_factory=list)


class GridSpec(LayerSpec):
    """A grid as its file writes it.

    Attributes:
        title: The title of its table.
        caption: What the table says below the title.
        source: The table of the paper that it repeats, if it does.
        seeds: The seeds of every cell.
        rows: The axis whose values are the rows of the table.
        columns: The axes whose values are its columns.
        metrics: The scores that it shows.
        chosen: Whether they are of the "best" or of the "final" round.
    """

    title: Text
    caption: str = ""
    source: str | None = None
    seeds: list[Seed]
    rows: Text
    columns: list[Text] = Field(default_factory=list)
    metrics: Annotated[list[Text], Field(min_length=1)]
    chosen: Literal["best", "final"] = "best"


class OverlaySpec(LayerSpec):
    """What an overlay changes of a grid.

    Attributes:
        title: Another title.
        caption: Another caption.
        note: A sentence that tables and the command line show.
        seeds: Other seeds.
        set: Settings over every cell, after those of the axes.
        equal_cells: Whether cells of different labels may be the same run, as when a small scale
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


Source = Path | Mapping[str, Any]
"""A TOML file, or what such a file holds."""


def read_spec(source: Source, kind: type[Spec]) -> Spec:
    """Return what a TOML file or a table holds, checked against this kind of specification."""
    values = _read_toml(source) if isinstance(source, Path) else source
    place = f"{source}: " if isinstance(source, Path) else ""
    _refuse_recipe(values, source)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = explain_validation_error(error, kind, separator=" ")
        raise RecipeError(f"{place}{problems}") from error


def _refuse_recipe(values: Mapping[str, Any], source: Source) -> None:
    """Refuse a recipe in one message; otherwise each of its keys would be unknown."""
    if {"data", "method"} & values.keys() and not {"axis", "recipe"} & values.keys():
        name = str(source) if isinstance(source, Path) else "this"
        way = (
            f"`fedbb run {source}` trains it" if isinstance(source, Path) else "fedbb.run takes it"
        )
        raise RecipeError(
            f"{name} is a recipe, not a grid: {way}; a grid has its settings in [recipe] and what "
            "differs in [[axis]]"
        )


def _read_toml(path: Path) -> Values:
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {explain_error(error)}") from error
    except ValueError as error:
        kinds = "; a grid is a TOML file, only a recipe may be JSON" * (path.suffix == ".json")
        raise RecipeError(f"{path} is not valid TOML: {error}{kinds}") from error


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


def cell_name(at: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """Return a folder name from a cell's labels, its seed, and a hash of all its settings.

    The engine is left out of the hash: where a run happens does not change its result.
    """
    decisive = {
        key: value for key, value in values.items() if key != "engine" or value == "central"
    }
    content = json.dumps([dict(at), decisive], sort_keys=True, default=str)
    mark = hashlib.sha256(content.encode()).hexdigest()[:8]
    labels = [plain(label) for label in at.values()]
    return "_".join([*filter(None, labels), f"seed{values['seed']}", mark])


def plain(label: str) -> str:
    """Return a label in small ASCII letters, digits and . + - only.

    >>> plain("FedBB (δ = 0.1)")
    'fedbb-delta-0.1'
    """
    letters = "".join(_ascii(letter) for letter in unicodedata.normalize("NFKD", label))
    return re.sub(r"[^a-z0-9.+]+", "-", letters.lower())[:LONGEST].strip("-.")


def _ascii(letter: str) -> str:
    found = re.fullmatch(r"GREEK \w+ LETTER (\w+)", unicodedata.name(letter, ""))
    if found:
        return found[1]
    return "" if unicodedata.combining(letter) else letter


@dataclass(frozen=True)
class Cell:
    """One run of a grid; `name` is its folder's, `at` its label on each axis."""

    name: str
    at: Mapping[str, str]
    seed: int
    recipe: Recipe

    @property
    def title(self) -> str:
        """The labels and the seed in words."""
        return " · ".join([*self.at.values(), f"seed {self.seed}"])


@dataclass(frozen=True)
class Grid:
    """A table's worth of runs.

    `axes` gives the labels of each axis in order; `rows` is one of them, `columns` are the others.
    `skipped` says why a combination, one label for every axis, has no cells.
    """

    title: str
    caption: str
    source: str | None
    rows: str
    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    chosen: Literal["best", "final"]
    notes: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    cells: tuple[Cell, ...]
    skipped: Mapping[Combination, str]


def read_grid(
    source: Source,
    overlays: Sequence[Source] = (),
    *,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] = (),
) -> Grid:
    """Return the grid of a file or table with overlays laid over it, every cell of it checked.

    `seeds` replace those of the files; `settings` such as "local.lr=0.02" go into every cell.
    """
    layers = _read_layers(source, overlays, settings)
    spec, over = layers.spec, layers.overlays
    with _where(_name("grid", source)):
        check_seeds(seeds or ())
        cells = tuple(_cells(layers, layers.seeds(seeds)))
        if not any(overlay.equal_cells for overlay in over):
            _check_equal(cells)
    return Grid(
        title=[spec.title, *(overlay.title for overlay in over if overlay.title)][-1],
        caption=[spec.caption, *(overlay.caption for overlay in over if overlay.caption)][-1],
        source=spec.source,
        rows=spec.rows,
        columns=tuple(spec.columns),
        metrics=tuple(spec.metrics),
        chosen=spec.chosen,
        notes=tuple(overlay.note for overlay in over if overlay.note),
        axes=layers.labels(),
        cells=cells,
        skipped=layers.skipped(),
    )


def _name(what: str, source: Source) -> str:
    return f"{what} {source}" if isinstance(source, Path) else what


def _read_layers(source: Source, overlays: Sequence[Source], settings: Sequence[str]) -> Layers:
    spec = read_spec(source, GridSpec)
    with _where(_name("grid", source)):
        check_grid(spec)
    over = []
    for layer in overlays:
        overlay = read_spec(layer, OverlaySpec)
        with _where(_name("overlay", layer)):
            check_overlay(overlay, spec)
        over.append(overlay)
    return Layers(spec, over, settings)


def _cells(layers: Layers, seeds: Sequence[int]) -> Iterator[Cell]:
    skipped = layers.skipped()
    for at in layers.combinations():
        if frozenset(at.items()) in skipped:
            continue
        for seed in seeds:
            with _where("cell " + ", ".join(f"{axis} = {label}" for axis, label in at.items())):
                yield _cell(layers, at, seed)


def _cell(layers: Layers, at: Mapping[str, str], seed: int) -> Cell:
    values = layers.values(at, seed)
    name = cell_name(at, values)
    recipe = make_recipe({**values, "name": name})
    check_recipe(recipe)
    return Cell(name, at, seed, recipe)


def _check_equal(cells: Sequence[Cell]) -> None:
    seen: dict[str, Cell] = {}
    for cell in cells:
        content = cell.recipe.model_dump_json(exclude={"name"})
        if content in seen:
            raise RecipeError(
                f"cells {seen[content].title} and {cell.title} are the same run; "
                "let the axes set something that differs"
            )
        seen[content] = cell


@contextmanager
def _where(place: str) -> Iterator[None]:
    """Say in the message of an error where it is."""
    try:
        yield
    except FedbbError as error:
        raise RecipeError(f"{place}: {error}") from error


def select(grid: Grid, only: Sequence[str]) -> Grid:
    """Return the grid with the cells that any of these texts chooses; without texts, all.

    A text that is a label chooses that label alone; any other, what contains it in labels, seed or
    name, of whose digest no part counts; with * or ?, the names of that pattern. "FedBB & seed 0"
    chooses what both parts choose.

    Raises:
        RecipeError: A text chooses nothing, or the grid has no cells.
    """
    if not grid.cells:
        raise RecipeError(f"{grid.title!r} has no cells to run")
    if not only:
        return grid
    chosen = {cell.name for text in only for cell in _matching(grid, text)}
    return replace(grid, cells=tuple(cell for cell in grid.cells if cell.name in chosen))


def _matching(grid: Grid, text: str) -> Sequence[Cell]:
    cells: Sequence[Cell] = grid.cells
    for part in text.split("&"):
        cells = [cell for cell in cells if _chooses(part.strip().casefold(), cell, grid)]
    if not cells:
        labels = [label for known in grid.axes.values() for label in known]
        raise RecipeError(f"no cell matches {text!r}{nearest(text, labels)}")
    return cells


def _chooses(text: str, cell: Cell, grid: Grid) -> bool:
    labels = {label.casefold() for known in grid.axes.values() for label in known}
    if text in labels:
        return text in {label.casefold() for label in cell.at.values()}
    if "*" in text or "?" in text:
        return fnmatch(cell.name.casefold(), text)
    name, _, digest = cell.name.casefold().rpartition("_")
    # A part of the digest would choose a cell by chance: many short words are hexadecimal numbers.
    return text in f"{cell.title.casefold()} {name}" or text in (digest, cell.name.casefold())
