"""What the running of a grid shows: bars on a terminal, plain lines elsewhere, JSON, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedbb.cli.duration import spell
from fedbb.cli.options import print_json
from fedbb.recipes.grid.grid import Cell
from fedbb.runs.cost_estimate import Forecast
from fedbb.runs.run_worker import ENDINGS, Kind, News

LONGEST = 44
"""Characters of a cell's title beside its bar."""


class GridScreen(Protocol):
    """Takes what happens to the cells of a grid."""

    def hear(self, cell: Cell, news: News) -> None:
        """Show a piece of news."""
        ...


@contextmanager
def open_grid_screen(
    console: Console, forecast: Forecast, *, as_json: bool, quiet: bool
) -> Iterator[GridScreen]:
    """Choose the screen that suits the output."""
    if quiet:
        yield Silence()
    elif as_json:
        yield JsonLines()
    elif console.is_terminal:
        with _bars(console) as progress:
            yield Bars(progress, forecast)
    else:
        yield PlainLines(console, forecast)


class Silence:
    """Shows nothing."""

    def hear(self, cell: Cell, news: News) -> None:
        """Show nothing."""


class JsonLines:
    """A JSON line for everything that happens."""

    def hear(self, cell: Cell, news: News) -> None:
        """Print the news."""
        line = {"event": str(news.kind), "cell": cell.name}
        if news.kind is Kind.ROUND:
            print_json({**line, "round": news.round, "seconds": news.seconds}, indent=None)
        else:
            print_json({**line, "message": news.message} if news.message else line, indent=None)


class PlainLines:
    """A line for each cell that ends."""

    def __init__(self, console: Console, forecast: Forecast) -> None:
        self.console = console
        self.forecast = forecast

    def hear(self, cell: Cell, news: News) -> None:
        """Print a warning or an ending, with the time left."""
        if news.kind is Kind.WARNING:
            self._print(f"warning: {cell.title}: {news.message}")
        elif news.kind in ENDINGS:
            self._print(f"{ending(cell, news)}  left {spell(self.forecast.seconds())}")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bars:
    """A bar for the whole grid, and one for each cell under way."""

    def __init__(self, progress: Progress, forecast: Forecast) -> None:
        self.progress = progress
        self.forecast = forecast
        self.rounds = sum(forecast.left.values())
        self.whole = progress.add_task("rounds of all cells", total=self.rounds, note="")
        self.cells: dict[str, TaskID] = {}
        self._tell()

    def hear(self, cell: Cell, news: News) -> None:
        """Draw the news; what ends is printed above the bars."""
        if news.kind is Kind.BEGUN:
            title, total = escape(_short(cell.title)), cell.recipe.rounds.number
            self.cells[cell.name] = self.progress.add_task(f"  {title}", total=total, note="")
        elif news.kind is Kind.ROUND:
            note = f"{news.round} of {cell.recipe.rounds.number}"
            self.progress.update(self.cells[cell.name], completed=news.round, note=note)
        elif news.kind is Kind.WARNING:
            self._print(f"warning: {cell.title}: {news.message}")
        else:
            self.progress.remove_task(self.cells.pop(cell.name))
            self._print(ending(cell, news))
        self._tell()

    def _tell(self) -> None:
        left = sum(self.forecast.left.values())
        note = f"{self.rounds - left} of {self.rounds}, {spell(self.forecast.seconds())} left"
        self.progress.update(self.whole, completed=self.rounds - left, note=note)

    def _print(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def ending(cell: Cell, news: News) -> str:
    """Return how a cell ended, in words."""
    reason = f": {news.message}" if news.message else ""
    return f"{news.kind} {cell.title}{reason}"


def _bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[note]}"))
    return Progress(*columns, console=console, transient=True)


def _short(title: str) -> str:
    return title if len(title) <= LONGEST else f"{title[: LONGEST - 1]}…"
