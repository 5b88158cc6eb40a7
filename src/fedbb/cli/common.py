"""Options, durations, signals and progress bars that several verbs share."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from fedbb._util.table import to_terminal
from fedbb._util.text import visible

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def _import_from_here(allowed: bool) -> bool:
    """Let code be imported from the current folder, as `python -m` does."""
    # By its full path, which worker processes inherit.
    here = str(Path.cwd())
    if allowed and here not in sys.path:
        sys.path.insert(0, here)
    return allowed


AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        callback=_import_from_here,
        help="Import code that the recipe or model file names.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Worker processes; one per core if not given. Changes speed, not results.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def print_json(value: Any, *, indent: int | None = 1) -> None:
    """Print a value as JSON on standard output."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # JSON leaves some control characters as they are; a terminal would obey them.
    typer.echo(re.sub(r"[^\n -~]", _escape, text))


def _escape(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def say(console: Console, part: RenderableType, *, wrap: bool = False) -> None:
    """Print any text as it is, without markup, or a table.

    Characters that a terminal might obey become "?".

    Args:
        console: Where to print.
        part: What to print, also from outside.
        wrap: Whether lines are broken to the width of the console.
    """
    console.print(to_terminal(part), highlight=False, soft_wrap=not wrap)


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print any text, with "?" for characters that a terminal might obey.

    Args:
        text: What to print, also from outside.
        err: Print to standard error.
        nl: End the line.
    """
    typer.echo(visible(str(text)), err=err, nl=nl)


def format_duration(seconds: float) -> str:
    """Return a length of time in one or two units.

    >>> format_duration(8), format_duration(90), format_duration(6600), format_duration(200_000)
    ('8 s', '1 min 30 s', '1 h 50 min', '2 d 7 h')
    """
    whole = max(0, round(seconds))
    for unit, inner, length, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {inner}"
    # Past ten minutes seconds say nothing.
    if whole >= 600:
        return f"{whole // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on SIGTERM too."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress_bar(
    what: str,
    *,
    hidden: bool = False,
    console: Console | None = None,
    column: ProgressColumn | None = None,
    remaining: bool = False,
) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal while the block runs.

    Args:
        what: The text before the bar.
        hidden: Show nothing.
        console: Where to draw; standard error by default.
        column: The figure after the bar; how many of how many by default.
        remaining: Show the time remaining as well.

    Yields:
        A function of (done, total) that moves the bar.
    """
    console = console or Console(stderr=True)
    columns = [TextColumn("{task.description}"), BarColumn(), column or MofNCompleteColumn()]
    if remaining:
        columns.append(TimeRemainingColumn())
    # Off a terminal a bar that was never drawn would still leave an empty line.
    disable = hidden or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)
