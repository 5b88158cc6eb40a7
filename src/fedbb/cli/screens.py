"""What runs and sweeps show: live tables and bars, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table as RichTable

from fedbb._util.table import make_table, to_rich, to_terminal
from fedbb._util.text import counted
from fedbb.cli.common import echo, format_duration, print_json, say
from fedbb.evaluation.metrics import is_collapsed
from fedbb.recipes.grid import Cell
from fedbb.recipes.spec import Recipe
from fedbb.runs.cost_estimate import RemainingTime
from fedbb.runs.scheduler import ENDINGS, EventKind, RunEvent

Record = dict[str, Any]

COLUMNS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "f1": "F1",
    "auroc": "AUROC",
    "average_precision": "avg. prec.",
}
ROWS = 15
LONGEST = 44
"""Characters of a cell's title beside its bar."""
COLLAPSED = (
    "warning: the final model gives every test sample the same scores; "
    "a lower local.lr or method mu may help"
)


class RunScreen(Protocol):
    """Shows the progress of one run."""

    def preparing(self, done: int, whole: int) -> None:
        """Show how many images have been decoded."""
        ...

    def round(self, record: Record) -> None:
        """Show a finished round."""
        ...

    def message(self, text: str) -> None:
        """Show a note or a warning."""
        ...

    def finish(self, summary: dict[str, Any]) -> None:
        """Show how the run ended."""
        ...


@contextmanager
def open_screen(recipe: Recipe, folder: Path, *, as_json: bool, quiet: bool) -> Iterator[RunScreen]:
    """Choose the screen that suits the output."""
    console = Console()
    if quiet:
        yield Silence()
    elif as_json:
        yield JsonLines()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
            yield RunTable(live, recipe, folder)
    else:
        yield RunLines(recipe, folder)


class SweepScreen(Protocol):
    """Shows the progress of the cells of a sweep."""

    def handle(self, cell: Cell, event: RunEvent) -> None:
        """Show an event of a cell."""
        ...


@contextmanager
def open_sweep_screen(
    console: Console, remaining: RemainingTime, *, as_json: bool, quiet: bool
) -> Iterator[SweepScreen]:
    """Choose the screen that suits the output."""
    if quiet:
        yield Silence()
    elif as_json:
        yield JsonLines()
    elif console.is_terminal:
        with _bars(console) as progress:
            yield SweepBars(progress, remaining)
    else:
        yield SweepLines(console, remaining)


class Silence:
    """Shows nothing of a run or a sweep."""

    def preparing(self, done: int, whole: int) -> None:
        """Show nothing."""

    def round(self, record: Record) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Show nothing."""

    def finish(self, summary: dict[str, Any]) -> None:
        """Show nothing."""

    def handle(self, cell: Cell, event: RunEvent) -> None:
        """Show nothing."""


class JsonLines(Silence):
    """A JSON line on standard output for each event; messages go to standard error.

    The summary of a run is left to the verb, which prints it last.
    """

    def round(self, record: Record) -> None:
        """Print the record of a finished round."""
        print_json(record, indent=None)

    def message(self, text: str) -> None:
        """Print to standard error."""
        echo(text, err=True)

    def handle(self, cell: Cell, event: RunEvent) -> None:
        """Print an event of a cell."""
        line = {"event": str(event.kind), "cell": cell.name}
        if event.kind is EventKind.ROUND:
            print_json({**line, "round": event.round, "seconds": event.seconds}, indent=None)
        else:
            print_json({**line, "message": event.message} if event.message else line, indent=None)


class RunLines:
    """A line for each round."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.rounds = recipe.rounds.number
        self.folder = folder
        self.clock = Clock()
        self.tenths = 0
        echo(f"{_title(recipe)}: {counted(self.rounds, 'round')}, kept in {folder}")

    def preparing(self, done: int, whole: int) -> None:
        """Print a line for every tenth of the images."""
        tenths = 10 * done // whole
        if tenths > self.tenths:
            echo(f"images decoded: {done:,} of {whole:,}")
        self.tenths = tenths

    def round(self, record: Record) -> None:
        """Print the round's figures on one line."""
        figures = "  ".join(f"{COLUMNS[name]} {value}" for name, value in _figures(record).items())
        left = self.clock.left(self.rounds - record["round"])
        echo(
            f"round {record['round']}/{self.rounds}  {figures}  "
            f"loss {_loss(record)}  {_seconds(record):.1f} s  left {left}"
        )

    def message(self, text: str) -> None:
        """Print the text."""
        echo(text)

    def finish(self, summary: dict[str, Any]) -> None:
        """Print best and final figures."""
        echo(ending(summary, self.folder))


class RunTable:
    """The last rounds as a table that grows in place."""

    def __init__(self, live: Live, recipe: Recipe, folder: Path) -> None:
        self.live = live
        self.title = _title(recipe)
        self.rounds = recipe.rounds.number
        self.folder = folder
        self.clock = Clock()
        self.recent: deque[Record] = deque(maxlen=ROWS)
        live.update(to_terminal(f"{self.title}: the first round is under way …"), refresh=True)

    def preparing(self, done: int, whole: int) -> None:
        """Tell in the table's place how many images are decoded."""
        text = f"{self.title}: {done:,} of {whole:,} images decoded …"
        self.live.update(to_terminal(text), refresh=True)

    def round(self, record: Record) -> None:
        """Add the round and draw the table again."""
        self.recent.append(record)
        left = self.clock.left(self.rounds - record["round"])
        self.live.update(self._table(f"{record['round']} of {self.rounds} rounds, {left} left"))
        self.live.refresh()

    def message(self, text: str) -> None:
        """Print above the table."""
        say(self.live.console, text)

    def finish(self, summary: dict[str, Any]) -> None:
        """Draw the table a last time and print best and final figures below it."""
        if self.recent:
            self.live.update(self._table(""), refresh=True)
        self.live.stop()
        self.message(ending(summary, self.folder))

    def _table(self, note: str) -> RichTable:
        head = ("round", *COLUMNS.values(), "train loss", "seconds")
        rows = [
            (r["round"], *_figures(r).values(), _loss(r), f"{_seconds(r):.1f}") for r in self.recent
        ]
        return to_rich(make_table(head, rows, self.title, words=0, note=note))


class Clock:
    """Estimates the time left from the rounds since it was made."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.rounds = 0

    def left(self, rounds: int) -> str:
        """Count a finished round and return the time the others will take."""
        self.rounds += 1
        seconds = round((time.monotonic() - self.began) / self.rounds * rounds)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


STOPPED = {
    "patience": "stopped early: no better score on validation data within rounds.patience\n",
    "target": "stopped early: the score on validation data has reached rounds.target\n",
}


def ending(summary: dict[str, Any], folder: Path) -> str:
    """Return the closing words of a run."""
    metric, best, final = summary["metric"], summary["best"], summary["final"]
    name = COLUMNS.get(metric, metric)
    reason = STOPPED[summary["stopped"]] if summary.get("stopped") else ""
    dead = f"{COLLAPSED}\n" if is_collapsed(final["scores"]["test"]["per_class"]) else ""
    return (
        f"final {name} {percent(final['scores']['test']['macro'][metric])} "
        f"(round {final['round']}); best {percent(best['scores']['test']['macro'][metric])} "
        f"(round {best['round']}, chosen on {best['chosen_on']} data)\n"
        f"{reason}{dead}"
        f"run folder: {folder}"
    )


def percent(value: float | None) -> str:
    """Return a share as a percentage, or a dash where it is undefined."""
    return "–" if value is None else f"{100 * value:.2f}"


def _title(recipe: Recipe) -> str:
    return f"{recipe.method.name} on {recipe.data.name}, seed {recipe.seed}"


def _figures(record: Record) -> dict[str, str]:
    macro = record["scores"]["test"]["macro"]
    return {name: percent(macro[name]) for name in COLUMNS}


def _loss(record: Record) -> str:
    """Return the clients' mean loss; where aggregation is secure the server does not know it."""
    clients = record["clients"]
    if any(client.get("train_loss") is None for client in clients):
        return "–"
    return f"{sum(client['weight'] * client['train_loss'] for client in clients):.4f}"


def _seconds(record: Record) -> float:
    return float(sum(record["seconds"].values()))


class SweepLines:
    """A line for each cell that ends."""

    def __init__(self, console: Console, remaining: RemainingTime) -> None:
        self.console = console
        self.remaining = remaining

    def handle(self, cell: Cell, event: RunEvent) -> None:
        """Print a warning or an ending, with the time left."""
        if event.kind is EventKind.WARNING:
            say(self.console, f"warning: {cell.title}: {event.message}")
        elif event.kind in ENDINGS:
            left = format_duration(self.remaining.seconds())
            say(self.console, f"{cell_ending(cell, event)}  left {left}")


class SweepBars:
    """A bar for the whole grid, and one for each cell under way."""

    def __init__(self, progress: Progress, remaining: RemainingTime) -> None:
        self.progress = progress
        self.remaining = remaining
        self.rounds = sum(remaining.left.values())
        self.whole = progress.add_task("rounds of all cells", total=self.rounds, note="")
        self.cells: dict[str, TaskID] = {}
        self._tell()

    def handle(self, cell: Cell, event: RunEvent) -> None:
        """Draw an event; what ends is printed above the bars."""
        if event.kind is EventKind.BEGUN:
            title, total = escape(_short(cell.title)), cell.recipe.rounds.number
            self.cells[cell.name] = self.progress.add_task(f"  {title}", total=total, note="")
        elif event.kind is EventKind.ROUND:
            note = f"{event.round} of {cell.recipe.rounds.number}"
            self.progress.update(self.cells[cell.name], completed=event.round, note=note)
        elif event.kind is EventKind.WARNING:
            say(self.progress.console, f"warning: {cell.title}: {event.message}")
        else:
            self.progress.remove_task(self.cells.pop(cell.name))
            say(self.progress.console, cell_ending(cell, event))
        self._tell()

    def _tell(self) -> None:
        left = sum(self.remaining.left.values())
        time_left = format_duration(self.remaining.seconds())
        note = f"{self.rounds - left} of {self.rounds}, {time_left} left"
        self.progress.update(self.whole, completed=self.rounds - left, note=note)


def cell_ending(cell: Cell, event: RunEvent) -> str:
    """Return how a cell ended, in words."""
    reason = f": {event.message}" if event.message else ""
    return f"{event.kind} {cell.title}{reason}"


def _bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[note]}"))
    return Progress(*columns, console=console, transient=True)


def _short(title: str) -> str:
    return title if len(title) <= LONGEST else f"{title[: LONGEST - 1]}…"
