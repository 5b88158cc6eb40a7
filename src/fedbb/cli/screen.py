"""What a run shows: a live table on a terminal, plain lines elsewhere, JSON lines, or nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedbb.cli.options import print_json
from fedbb.evaluation.metrics import is_collapsed
from fedbb.recipes.spec import Recipe

Record = dict[str, Any]

COLUMNS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "f1": "F1",
    "auroc": "AUROC",
    "average_precision": "avg. prec.",
}
ROWS = 15
COLLAPSED = (
    "warning: the final model gives every test sample the same scores; "
    "a lower local.lr or method mu may help"
)


class Screen(Protocol):
    """Takes what happens in a run."""

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
def open_screen(recipe: Recipe, folder: Path, *, as_json: bool, quiet: bool) -> Iterator[Screen]:
    """Choose the screen that suits the output."""
    console = Console()
    if quiet:
        yield Silence()
    elif as_json:
        yield JsonLines()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
            yield LiveTable(live, recipe, folder)
    else:
        yield PlainLines(recipe, folder)


class Silence:
    """Shows nothing."""

    def preparing(self, done: int, whole: int) -> None:
        """Show nothing."""

    def round(self, record: Record) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Show nothing."""

    def finish(self, summary: dict[str, Any]) -> None:
        """Show nothing."""


class JsonLines:
    """A JSON line for each round on standard output; messages go to standard error."""

    def preparing(self, done: int, whole: int) -> None:
        """Show nothing."""

    def round(self, record: Record) -> None:
        """Print the record."""
        print_json(record, indent=None)

    def message(self, text: str) -> None:
        """Print to standard error."""
        typer.echo(text, err=True)

    def finish(self, summary: dict[str, Any]) -> None:
        """Leave the summary to the verb, which prints it last."""


class PlainLines:
    """A line for each round."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.rounds = recipe.rounds.number
        self.folder = folder
        self.clock = Clock()
        self.tenths = 0
        number = f"{self.rounds} round{'s' if self.rounds > 1 else ''}"
        typer.echo(f"{_title(recipe)}: {number}, kept in {folder}")

    def preparing(self, done: int, whole: int) -> None:
        """Print a line for every tenth of the images."""
        tenths = 10 * done // whole
        if tenths > self.tenths:
            typer.echo(f"images decoded: {done:,} of {whole:,}")
        self.tenths = tenths

    def round(self, record: Record) -> None:
        """Print the round's figures on one line."""
        figures = "  ".join(f"{COLUMNS[name]} {value}" for name, value in _figures(record).items())
        left = self.clock.left(self.rounds - record["round"])
        typer.echo(
            f"round {record['round']}/{self.rounds}  {figures}  "
            f"loss {_loss(record)}  {_seconds(record):.1f} s  left {left}"
        )

    def message(self, text: str) -> None:
        """Print the text."""
        typer.echo(text)

    def finish(self, summary: dict[str, Any]) -> None:
        """Print best and final figures."""
        typer.echo(ending(summary, self.folder))


class LiveTable:
    """The last rounds as a table that grows in place."""

    def __init__(self, live: Live, recipe: Recipe, folder: Path) -> None:
        self.live = live
        self.title = _title(recipe)
        self.rounds = recipe.rounds.number
        self.folder = folder
        self.clock = Clock()
        self.recent: deque[Record] = deque(maxlen=ROWS)
        live.update(f"{self.title}: the first round is under way …", refresh=True)

    def preparing(self, done: int, whole: int) -> None:
        """Tell in the table's place how many images are decoded."""
        self.live.update(f"{self.title}: {done:,} of {whole:,} images decoded …", refresh=True)

    def round(self, record: Record) -> None:
        """Add the round and draw the table again."""
        self.recent.append(record)
        left = self.clock.left(self.rounds - record["round"])
        self.live.update(self._table(f"{record['round']} of {self.rounds} rounds, {left} left"))
        self.live.refresh()

    def message(self, text: str) -> None:
        """Print above the table."""
        self.live.console.print(text, markup=False, highlight=False)

    def finish(self, summary: dict[str, Any]) -> None:
        """Draw the table a last time and print best and final figures below it."""
        if self.recent:
            self.live.update(self._table(None), refresh=True)
        self.live.stop()
        self.message(ending(summary, self.folder))

    def _table(self, caption: str | None) -> Table:
        table = Table(title=self.title, caption=caption, title_justify="left")
        table.add_column("round", justify="right")
        for name in _figures(self.recent[-1]):
            table.add_column(COLUMNS[name], justify="right")
        table.add_column("train loss", justify="right")
        table.add_column("seconds", justify="right")
        for record in self.recent:
            table.add_row(
                str(record["round"]),
                *_figures(record).values(),
                _loss(record),
                f"{_seconds(record):.1f}",
            )
        return table


class Clock:
    """Tells the time left from the rounds since it was made."""

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


def ending(summary: dict[str, Any], folder: Path) -> str:
    """Return the closing words of a run."""
    metric, best, final = summary["metric"], summary["best"], summary["final"]
    name = COLUMNS[metric]
    dead = f"{COLLAPSED}\n" if is_collapsed(final["scores"]["test"]["per_class"]) else ""
    return (
        f"final {name} {percent(final['scores']['test']['macro'][metric])} "
        f"(round {final['round']}); best {percent(best['scores']['test']['macro'][metric])} "
        f"(round {best['round']}, chosen on {best['chosen_on']} data)\n"
        f"{dead}"
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
