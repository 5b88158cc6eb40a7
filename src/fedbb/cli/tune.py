"""`fedbb tune`: choose the learning rate and the options of a method on validation data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedbb._util.files import parse_toml
from fedbb._util.table import Table, make_table, to_rich
from fedbb.cli.common import AllowCode, Json, Processes, Quiet, echo, print_json, say, stoppable
from fedbb.cli.grids import Seeds, parse_seeds
from fedbb.errors import RecipeError
from fedbb.recipes.grid import read_grid
from fedbb.recipes.reader import read_recipe
from fedbb.recipes.spec import Recipe, run_name
from fedbb.runs.tuning import RECIPE, Trial, Tuned
from fedbb.runs.tuning import tune as tune_recipe


def tune(
    source: Annotated[Path, typer.Argument(help="Recipe (.toml, .json) or grid file (.toml).")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; tuning/<name> if not given.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            metavar="KEY=LOW:HIGH",
            help="What to search, also KEY=a,b,c; learning rate and numeric options by default.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each search.")] = 12,
    seeds: Seeds = "100",
    workers: Processes = None,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose the learning rate of a recipe, then the options of its method.

    It decides by scores on validation data alone, stops trials that are worse than most, and writes
    the tuned recipe. If it is stopped and started again, it continues where it was. Every method
    and setting of a grid is tuned separately.
    """
    found: dict[str, Tuned] = {}
    for name, recipe in _recipes(source, settings or []).items():
        folder = (out or Path("tuning") / source.stem) / name
        try:
            with stoppable():
                found[name] = tune_recipe(
                    recipe,
                    folder,
                    search=search or (),
                    trials=trials,
                    seeds=parse_seeds(seeds) or (),
                    workers=workers,
                    allow_code=allow_code,
                    progress=None if quiet or as_json else _print_trial,
                )
        except KeyboardInterrupt:
            echo("stopped; the same command continues it", err=True)
            raise typer.Exit(130) from None
        if not (as_json or quiet):
            _show(name, found[name], folder)
    if as_json:
        print_json({name: _as_json(tuned) for name, tuned in found.items()})


def _recipes(source: Path, settings: list[str]) -> dict[str, Recipe]:
    """Return the recipe of a file, or those of a grid with one seed each, by name."""
    try:
        is_grid = source.suffix == ".toml" and "recipe" in parse_toml(source.read_text("utf-8"))
    except (OSError, ValueError):
        is_grid = False  # the reader of recipes says what is wrong
    if not is_grid:
        recipe = read_recipe(source, settings)
        return {run_name(recipe): recipe}
    cells = read_grid(source, seeds=[0], settings=settings).cells
    if not cells:
        raise RecipeError(f"{source} has no cells to tune")
    return {cell.name: cell.recipe for cell in cells}


def _print_trial(trial: Trial) -> None:
    echo(f"search {trial.stage}: {_settings(trial)}: {trial.stopped or _score(trial)}", err=True)


def _settings(trial: Trial) -> str:
    """Return the settings of a trial, options of the method by their own names."""
    named = {key.removeprefix("method.options."): value for key, value in trial.values.items()}
    return ", ".join(
        f"{key} = {f'{value:.6g}' if isinstance(value, float) else value}"
        for key, value in named.items()
    )


def _score(trial: Trial) -> str:
    return f"{trial.score:.4f}"


def _show(name: str, tuned: Tuned, folder: Path) -> None:
    console = Console()
    say(console, f"{name}: {tuned.metric} {tuned.score:.4f} on validation data")
    say(console, to_rich(_best_table(tuned)))
    for warning in tuned.warnings:
        say(console, f"warning: {warning}", wrap=True)
    say(console, f"tuned recipe: {folder / RECIPE}")


def _best_table(tuned: Tuned) -> Table:
    """Return the trials that came to their end, the best of each search first."""
    ended = [trial for trial in tuned.trials if trial.score is not None]
    ended.sort(key=lambda trial: (trial.stage, -(trial.score or 0.0)))
    rows = [(str(trial.stage), _settings(trial), _score(trial)) for trial in ended]
    stopped = len(tuned.trials) - len(ended)
    note = f"Trials that were stopped early: {stopped}." if stopped else ""
    return make_table(["search", "settings", tuned.metric], rows, words=2, note=note)


def _as_json(tuned: Tuned) -> dict[str, Any]:
    values = asdict(tuned)
    return values | {"recipe": tuned.recipe.model_dump(mode="json"), "seeds": list(tuned.seeds)}
