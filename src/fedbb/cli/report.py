"""`fedbb report`: runs side by side in one page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedbb._util.text import counted
from fedbb.cli.common import Json, Quiet, echo, print_json, say
from fedbb.report.groups import Gathered, gather
from fedbb.report.method_comparison import MethodComparison, as_json
from fedbb.report.page.report import TITLE, write_report


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="The page's title.")] = TITLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained page on runs: verdicts, tables, figures, fairness, settings.

    Unfinished and damaged runs are left out, with the reason; the others are reported.
    """
    console = Console(quiet=quiet or as_json)
    try:
        with console.status("reading runs"):
            gathered = gather(runs)
            parts = write_report(gathered, out, title)
    except KeyboardInterrupt:
        echo(f"stopped; {out} was not written", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(_summary(out, gathered, parts))
    for item in gathered.left_out:
        say(console, f"left out: {item.path}: {item.reason}")
    for part in parts:
        say(console, part.comparison.title)
        for sentence in part.sentences:
            say(console, f"  {sentence}")
    say(console, f"{counted(len(gathered.runs), 'run')} in {out}")


def _summary(out: Path, gathered: Gathered, parts: list[MethodComparison]) -> dict[str, Any]:
    left_out = [{"path": str(item.path), "reason": item.reason} for item in gathered.left_out]
    found = as_json(parts)["comparisons"]
    return {"page": str(out), "comparisons": found, "left_out": left_out}
