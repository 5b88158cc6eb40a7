"""`fedbb verify`: run a stored result again and say whether the same comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbb._util.toml import to_toml
from fedbb.cli.common import AllowCode, Json, Processes, Quiet, echo, print_json, stoppable
from fedbb.errors import RecipeError, RunError
from fedbb.report.verification import Outcome, StoredResult, Verification, stored_cell, stored_run
from fedbb.report.verification import verify as run_again


def verify(
    source: Annotated[Path, typer.Argument(help="Finished run folder, or grid file (.toml).")],
    cell: Annotated[
        str | None, typer.Argument(help="Cell of the grid: its name, or a part of it.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Stored cells of the grid; docs/results/<grid>/cells.csv if not given."),
    ] = None,
    workers: Processes = None,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print what would run, as a recipe, and run nothing.")
    ] = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a stored result again and check whether the result is the same.

    The same bits are expected on the same kind of processor with the same versions. Elsewhere the
    score must lie in the 95 % prediction interval of the setting, from its stored seeds. Exits
    with 1 if it does not.
    """
    stored = _find(source, cell, results)
    if recipe:
        echo(to_toml(stored.recipe.model_dump(mode="json")).rstrip())
        return
    if not (as_json or quiet):
        echo(f"running {stored.name} again", err=True)
    try:
        with stoppable():
            found = run_again(stored, workers=workers, allow_code=allow_code)
    except KeyboardInterrupt:
        echo("stopped; nothing was verified", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(_as_json(found))
    elif not quiet:
        echo(_sentence(found))
    if found.outcome is Outcome.DIFFERS:
        raise typer.Exit(1)


def _find(source: Path, cell: str | None, results: Path | None) -> StoredResult:
    if source.is_dir():
        if cell is not None:
            raise RecipeError("a run folder has no cells; name the grid file to verify a cell")
        return stored_run(source)
    if not source.exists():
        raise RecipeError(
            f"{source} does not exist; give the folder of a finished run, or a grid file and a cell"
        )
    if cell is None:
        raise RecipeError(f"name a cell of {source}, or give the folder of a finished run")
    stored = results or Path("docs", "results", source.stem, "cells.csv")
    if not stored.exists():
        raise RunError(
            f"no stored results of {source}: {stored} does not exist; call this in the folder of "
            "the repository, or name the file by --results"
        )
    return stored_cell(source, cell, stored)


def _sentence(found: Verification) -> str:
    stored = found.stored
    scores = f"{stored.metric} {100 * found.score:.2f}, stored {100 * stored.score:.2f}"
    if found.outcome is Outcome.SAME_BITS:
        return f"same bits: {scores}; SHA-256 {found.sha256}"
    about = f"other bits ({found.sha256[:12]}… instead of {stored.sha256[:12]}…): {scores}"
    if found.outcome is Outcome.UNKNOWN:
        return f"{about}; a single seed is stored, so no interval is known"
    low, high = 100 * stored.interval.low, 100 * stored.interval.high
    return f"{about}; {found.outcome} {low:.2f} to {high:.2f} of {1 + len(stored.others)} seeds"


def _as_json(found: Verification) -> dict[str, object]:
    stored, interval = found.stored, found.stored.interval
    known = interval.low == interval.low  # NaN differs from itself
    return {
        "name": stored.name,
        "outcome": str(found.outcome),
        "metric": stored.metric,
        "score": found.score,
        "kept_score": stored.score,
        "interval": [interval.low, interval.high] if known else None,
        "sha256": found.sha256,
        "kept_sha256": stored.sha256,
    }
