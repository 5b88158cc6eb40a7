"""Running a stored run again: equal bits, or scores within the interval of its kind."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from fedbb._util.plugins import AllowedCode
from fedbb.errors import RecipeError, RunError
from fedbb.recipes.grid import Cell, read_grid
from fedbb.recipes.spec import Recipe
from fedbb.report.results import read_run, score_on_test, summary_of
from fedbb.report.statistics import Interval, prediction_interval
from fedbb.runs.runner import run as run_recipe


class Outcome(StrEnum):
    """How a repeated run compares with the stored one."""

    SAME_BITS = "same bits"
    WITHIN = "within the interval"
    DIFFERS = "differs"
    UNKNOWN = "no interval known"


@dataclass(frozen=True)
class StoredResult:
    """What is known of a run whose results are stored.

    Args:
        name: Its name.
        recipe: What to run.
        metric: The macro score on test data that is compared, after the last round.
        score: Its stored value.
        sha256: Digest of the final model.
        others: The same score of runs that differ by their seed only.
    """

    name: str
    recipe: Recipe
    metric: str
    score: float
    sha256: str
    others: tuple[float, ...] = ()

    @property
    def interval(self) -> Interval:
        """Where 95 % of further runs of the setting are expected, by the scores of all seeds.

        Student's prediction interval; not defined for a single seed.
        """
        return prediction_interval((self.score, *self.others))


@dataclass(frozen=True)
class Verification:
    """A stored run and what came out when it was run again."""

    stored: StoredResult
    score: float
    sha256: str

    @property
    def outcome(self) -> Outcome:
        """Same bits, or whether the score is one that the setting may give."""
        if self.sha256 == self.stored.sha256:
            return Outcome.SAME_BITS
        interval = self.stored.interval
        if math.isnan(interval.low):
            return Outcome.UNKNOWN
        inside = interval.low <= self.score <= interval.high
        return Outcome.WITHIN if inside else Outcome.DIFFERS


def verify(
    stored: StoredResult, *, workers: int | None = None, allow_code: AllowedCode = False
) -> Verification:
    """Run a stored result again in a temporary folder and compare.

    Args:
        stored: The result to compare with.
        workers: Worker processes; one per core if None.
        allow_code: Whether code that the recipe names may run.

    Returns:
        What came out, beside the stored result.

    Raises:
        FedbbError: The recipe cannot be run here, for example because its data is missing.
    """
    with TemporaryDirectory(prefix="fedbb-verify-") as place:
        folder = Path(place) / "run"
        for _ in run_recipe(stored.recipe, folder, workers=workers, allow_code=allow_code):
            pass
        again = read_run(folder)
    summary = summary_of(again)
    return Verification(stored, score_on_test(summary.final, stored.metric), summary.sha256)


def stored_run(folder: Path) -> StoredResult:
    """Return a finished run folder as one to verify.

    Args:
        folder: The run folder.

    Raises:
        RunError: It is not a run folder, or its run is unfinished.
    """
    found = read_run(folder)
    if found.summary is None:
        raise RunError(f"{folder} is unfinished: there is nothing to verify yet")
    summary = found.summary
    score = score_on_test(summary.final, summary.metric)
    return StoredResult(str(folder), found.recipe, summary.metric, score, summary.sha256)


def stored_cell(grid: Path, name: str, results: Path) -> StoredResult:
    """Return a cell of a grid with its stored results as one to verify.

    Args:
        grid: The grid file.
        name: Name of the cell, or a part that no other stored cell has.
        results: CSV file of the stored cells.

    Raises:
        RecipeError: The cell is unknown, ambiguous or not stored.
        RunError: The results cannot be read.
    """
    rows = _read(results)
    found = [row for row in rows if name in row["cell"]]
    exact = [row for row in found if row["cell"] == name]
    if len(exact or found) != 1:
        some = ", ".join(row["cell"] for row in (found or rows)[:4])
        kind = f"{len(found)} stored cells contain" if found else "no stored cell contains"
        raise RecipeError(f"{kind} {name!r} in {results}; cells are such as {some}")
    (row,) = exact or found
    cell = _cell(grid, row)
    metric = row["best by"].rpartition(" ")[2]
    column = f"test {metric}"
    others = [
        float(other[column])
        for other in rows
        if other is not row and all(other[axis] == label for axis, label in cell.at.items())
    ]
    return StoredResult(
        cell.name, cell.recipe, metric, float(row[column]), row["sha256"], tuple(others)
    )


def _read(results: Path) -> Sequence[Mapping[str, str]]:
    try:
        with results.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{results} cannot be read: {error}") from error
    if not rows or not {"cell", "seed", "best by", "sha256"} <= set(rows[0]):
        raise RunError(f"{results} holds no stored cells: it has no columns cell, seed and sha256")
    return rows


def _cell(grid: Path, row: Mapping[str, str]) -> Cell:
    for cell in read_grid(grid, seeds=[int(row["seed"])]).cells:
        if cell.name == row["cell"]:
            return cell
    raise RecipeError(f"{grid} has no cell {row['cell']}: it has changed since the cell was stored")
