"""`fedbb demo`: FedAvg, its control, FedBB and the balanced classifier on embedded data."""

from __future__ import annotations

import json
import shutil
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from fedbb._util.files import write_text, writing
from fedbb.cli.common import Json, Quiet, echo, print_json, progress_bar, say
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.report.groups import gather
from fedbb.report.method_comparison import as_json, as_markdown
from fedbb.report.page.report import write_report
from fedbb.runs.scheduler import RunJob, run_all

TITLE = "FedAvg, its control, FedBB and the balanced classifier on imbalanced labels"


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and page.")] = Path(
        "demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for each method.")] = 3,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core if not given.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run again what is already finished.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare four methods on three small embedded data sets.

    These are FedAvg, its control fedavg-scaled, FedBB, and FedAvg with the balanced classifier.
    Writes the runs, a report page, and its tables as Markdown and JSON. It resumes after a stop.
    """
    if fresh:
        shutil.rmtree(out / "runs", ignore_errors=True)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    jobs = [(recipe, out / "runs" / str(recipe.name)) for recipe in demo_recipes(seeds)]
    console = Console(quiet=quiet or as_json)
    try:
        _run(jobs, workers, console)
    except KeyboardInterrupt:
        echo(f"stopped; finished runs are kept in {out}; run the command again to resume", err=True)
        raise typer.Exit(130) from None
    page = write_demo([path for _, path in jobs], out)
    if as_json:
        print_json({"page": str(page)})
    console.print(Markdown((out / "results.md").read_text(encoding="utf-8")))
    say(console, f"\nPage with all figures: {page}")


def write_demo(folders: list[Path], out: Path) -> Path:
    """Write index.html, the page of `fedbb report`, and results.md and results.json beside it."""
    gathered, page = gather(folders), out / "index.html"
    parts = write_report(gathered, page, TITLE)
    unfinished = [item.path.name for item in gathered.left_out]
    plain = json.dumps(as_json(parts, unfinished), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(out / "results.md", as_markdown(TITLE, parts, unfinished))
    write_text(out / "results.json", plain + "\n")
    return page


def _run(jobs: list[RunJob], workers: int | None, console: Console) -> None:
    with progress_bar("runs", console=console, hidden=console.quiet, remaining=True) as progress:
        progress(0, len(jobs))
        for done, path in enumerate(run_all(jobs, workers), start=1):
            progress(done, len(jobs))
            if not console.is_terminal:
                say(console, f"finished {path.name}")


DATA = ("digits", "digit-mosaic", "breast-cancer")
METHODS = ("fedavg", "fedavg-scaled", "fedbb", "fedavg+lda-head")


def demo_recipes(seeds: int) -> list[Recipe]:
    """Return the recipes of the demo, the seeds of one method beside each other."""
    folder = resources.files("fedbb.recipes") / "demo"
    recipes = []
    for data in DATA:
        values = tomllib.loads((folder / f"{data}.toml").read_text(encoding="utf-8"))
        for method in METHODS:
            for seed in range(seeds):
                name = f"{data}-{method}-seed{seed}"
                chosen = {**values, "name": name, "seed": seed, "method": {"name": method}}
                recipes.append(make_recipe(chosen, f"demo recipe {name}"))
    return recipes
