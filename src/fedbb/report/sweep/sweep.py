"""A sweep from Python: all cells of a grid are run, and their table is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbb._util.plugins import AllowedCode
from fedbb.errors import RecipeError
from fedbb.recipes.grid import Grid, read_grid, select
from fedbb.report.frames import read_runs
from fedbb.report.sweep.figures import draw_figures
from fedbb.report.sweep.table_files import as_markdown, as_rows, read_table, write_tables
from fedbb.runs.scheduler import RunEvent
from fedbb.runs.sweep import RUNS, failures, run_grid, statuses

if TYPE_CHECKING:
    import pandas as pd

TextPath = str | PathLike[str]
GridSource = TextPath | Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """What a sweep gave; its text is the table in Markdown.

    Attributes:
        grid: The grid with all its cells.
        folder: Its folder: the table in several formats, and the run folders in `runs`.
        rows: A table of each combination of labels and metric, as in table.csv.
        failed: Why cells failed, by their labels and seed.
    """

    grid: Grid
    folder: Path
    rows: tuple[dict[str, Any], ...]
    failed: dict[str, str]

    def __str__(self) -> str:
        """Return the table in Markdown."""
        return as_markdown(read_table(self.grid, (), self.folder / RUNS), RUNS)

    def _repr_markdown_(self) -> str:
        return str(self)

    def frame(self) -> pd.DataFrame:
        """Return a row for each run, as `read_runs` does."""
        return read_runs(self.folder / RUNS)

    def draw(self, out: TextPath | None = None) -> list[Path]:
        """Draw the figures into a folder, `figures` in the sweep's own by default."""
        folder = self.folder / "figures" if out is None else Path(out)
        return draw_figures(self.grid, self.folder / RUNS, folder)


def sweep(
    grid: GridSource,
    out: TextPath | None = None,
    *,
    overlays: Sequence[GridSource] = (),
    settings: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    workers: int | None = None,
    allow_code: AllowedCode = False,
    progress: Callable[[str, RunEvent], None] | None = None,
) -> Sweep:
    """Run all cells of a grid that are not finished, and write the table of all.

    Called again with the same arguments, an interrupted sweep continues. A cell that fails does
    not stop the others.

    Args:
        grid: The path of a grid file, or a table of what such a file holds.
        out: Folder for the runs and the table; sweeps/NAME for a grid file NAME.toml if None.
        overlays: Files or tables that override parts of the grid.
        settings: Settings of every cell, such as "local.lr=0.02".
        seeds: Seeds in place of the grid's.
        only: Which cells to run, such as "FedBB" or "FedBB & seed 0"; all if empty.
        workers: How many cells run at a time; one per core if None.
        allow_code: Whether code that recipes name may run.
        progress: Called with the title of a cell and what happened to it.

    Returns:
        The table, and why cells failed.

    Raises:
        RecipeError: The grid is wrong, no cell matches, or a table was given and no folder.
        RunError: The folder is in use by another sweep.
    """
    source = _source(grid)
    if out is None and not isinstance(source, Path):
        raise RecipeError("a grid that is not a file has no name: give the folder (out) as well")
    read = read_grid(source, [_source(each) for each in overlays], seeds=seeds, settings=settings)
    chosen = select(read, only)
    folder = Path("sweeps", source.stem) if out is None else Path(out)  # type: ignore[union-attr]
    runs = folder / RUNS
    with closing(run_grid(chosen, runs, workers, allow_code=allow_code)) as happened:
        for cell, event in happened:
            if progress is not None:
                progress(cell.title, event)
    write_tables(read, (), runs, folder)
    failed = failures(chosen, statuses(chosen, runs))
    return Sweep(read, folder, tuple(as_rows(read_table(read, (), runs))), failed)


def _source(grid: GridSource) -> Path | Mapping[str, Any]:
    return grid if isinstance(grid, Mapping) else Path(grid)
