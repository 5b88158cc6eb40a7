"""`fedbb demo`: FedAvg, its control and FedBB on embedded data, told by a table and a page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedbb.cli.common import Json, Quiet, print_json
from fedbb.recipes.demonstration import demo_recipes
from fedbb.report.collect import read_runs
from fedbb.report.demo_page import write_demo
from fedbb.runs.scheduler import RunJob, run_all


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and page.")] = Path(
        "demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for each method.")] = 5,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core if not given.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run anew what is there already.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare FedAvg, its control fedavg-scaled and FedBB on two small embedded data sets.

    Writes runs, figures and a page to look at. Stopped and started again, it goes on.
    """
    if fresh:
        shutil.rmtree(out / "runs", ignore_errors=True)
    jobs = [(recipe, out / "runs" / str(recipe.name)) for recipe in demo_recipes(seeds)]
    console = Console(quiet=quiet or as_json)
    try:
        _run(jobs, workers, console)
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is finished is kept in {out}, start again to go on", err=True)
        raise typer.Exit(130) from None
    page = write_demo(read_runs([path for _, path in jobs]), out)
    if as_json:
        print_json({"page": str(page)})
    console.print(Markdown((out / "results.md").read_text(encoding="utf-8")))
    console.print(f"\nPage with all figures: {page}", markup=False, highlight=False)


def _run(jobs: list[RunJob], workers: int | None, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("runs", total=len(jobs))
        for path in run_all(jobs, workers):
            progress.advance(bar)
            if not console.is_terminal:
                console.print(f"finished {path.name}", markup=False, highlight=False)
