"""`fedbb run`: train a recipe, shown round by round, safe to stop at any moment."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbb.cli.common import AllowCode, Json, Processes, Quiet, print_json, stoppable
from fedbb.cli.screens import RunScreen, open_screen
from fedbb.errors import RunError
from fedbb.recipes.reader import read_recipe
from fedbb.recipes.spec import Recipe, run_name
from fedbb.runs import runner
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import read_federation, read_run_recipe
from fedbb.runs.runtime import choose_workers
from fedbb.trackers.export import Trackers, tracking


def run(
    recipe: Annotated[
        Path, typer.Argument(help="Recipe (.toml or .json), or with --resume a run folder.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder; runs/<name> if not given.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in local.lr=0.02."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an unfinished run, bit-identically.")
    ] = False,
    track: Annotated[
        list[str] | None,
        typer.Option("--track", metavar="NAME[=FOLDER]", help="tensorboard, mlflow or wandb."),
    ] = None,
    workers: Processes = None,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a recipe and save everything in a run folder.

    Each finished round is saved; Ctrl-C (exit 130) or a crash loses only the current round.
    """
    chosen, folder = resolve(recipe, settings or [], out, resume)
    with open_screen(chosen, folder, as_json=as_json, quiet=quiet) as screen, stoppable():
        try:
            with tracking(track or [], folder, screen.message) as trackers:
                _announce(choose_workers(chosen, workers), screen)
                records = runner.run(
                    chosen,
                    folder,
                    resume=resume,
                    progress=screen.preparing,
                    workers=workers,
                    allow_code=allow_code,
                )
                _follow(records, folder, screen, trackers)
        except KeyboardInterrupt:
            screen.message(_stopped(RunFolder(folder), chosen))
            raise typer.Exit(130) from None
    if as_json:
        print_json(RunFolder(folder).read_json("summary.json"), indent=None)


def _stopped(folder: RunFolder, recipe: Recipe) -> str:
    """Return what an interrupted run left, and how to continue it."""
    if not folder.is_run():
        return "stopped before the first round; nothing is kept, start the run again"
    if not folder.records():
        return f"stopped in the first round; start it again with: fedbb run --resume {folder.path}"
    return (
        f"stopped after round {len(folder.records())} of {recipe.rounds.number}, which is saved; "
        f"continue with: fedbb run --resume {folder.path}"
    )


def resolve(
    recipe: Path, settings: list[str], out: Path | None, resume: bool, runs: Path = Path("runs")
) -> tuple[Recipe, Path]:
    """Return a recipe, or that of the run to go on with, and the run's folder."""
    if recipe.is_dir():
        folder = RunFolder(recipe)
        if not resume:
            raise RunError(
                f"{recipe} is a folder; give a recipe file, or --resume with the folder of a run"
            )
        if not folder.is_run():
            raise RunError(
                f"{recipe} holds no run to resume: a run that ends before its first round keeps "
                "nothing; start it again with its recipe"
            )
        if settings or out:
            raise RunError("a run is resumed as it was begun, without --set or --out")
        return read_run_recipe(folder), recipe
    chosen = read_recipe(recipe, settings)
    return chosen, out or runs / run_name(chosen)


def _announce(workers: int, screen: RunScreen) -> None:
    if workers:
        screen.message(f"{workers} worker process{'es' if workers > 1 else ''}")


def _follow(
    records: Iterator[dict[str, Any]], folder: Path, screen: RunScreen, trackers: Trackers
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        for count, record in enumerate(records):
            if count == 0:
                _tell(caught, folder, screen)
            screen.round(record)
            trackers.record(record)
    screen.finish(RunFolder(folder).read_json("summary.json"))


def _tell(caught: list[warnings.WarningMessage], folder: Path, screen: RunScreen) -> None:
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        screen.message(f"warning: {message}")
    for note in read_federation(RunFolder(folder)).notes:
        screen.message(f"note: {note}")
