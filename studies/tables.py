"""Tables of Markdown from the stored results: scores, paired differences, classes, origin."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fedbb._util import table as writer
from fedbb.recipes.grid import Cell
from fedbb.report.statistics import paired_difference, spread_of
from fedbb.report.text import difference_text, metric_title
from fedbb.report.text import score_text as spread_text
from studies.stored import StoredGrid

MISSING = "–"


def markdown(head: Sequence[str], rows: Iterable[Sequence[writer.Entry]], words: int = 1) -> str:
    """Return a table of Markdown whose first columns hold words."""
    whole = writer.make_table(head, rows, words=words)
    return writer.to_markdown(whole, escaped=False).rstrip("\n")


def measure_title(measure: str) -> str:
    """Return a measure such as "test auroc" as a title."""
    part, _, metric = measure.partition(" ")
    return f"{part} {metric_title(metric)}" if metric else metric_title(part)


def score_text(values: Mapping[int, float], seeds: int, diverged: int = 0) -> str:
    """Return mean ± deviation over seeds, in points, and how many seeds if not all."""
    if not values:
        return "diverged" if diverged else MISSING
    others = f", {diverged} diverged" if diverged else ""
    few = f" ({len(values)} of {seeds} seeds{others})" if len(values) < seeds else ""
    return spread_text(spread_of(values.values())) + few


def compare(own: Mapping[int, float], base: Mapping[int, float]) -> str:
    """Return one score minus another, paired by seed, in points, with interval and verdict."""
    paired = paired_difference(own, base)
    return difference_text(paired, scale=100) if paired.seeds else MISSING


def scores(
    stored: StoredGrid,
    measure: str,
    number: str,
    *,
    choosing: bool = False,
    only: Sequence[str] | None = None,
) -> str:
    """Return mean ± deviation over seeds of a measure, a numbered row for each of the grid's.

    Args:
        stored: The grid and its results.
        measure: Column of the results, such as "test accuracy".
        number: Number of the table, which begins the numbers of its rows.
        choosing: Whether the highest mean of each row is bold, instead of each column.
        only: Labels of the rows to show and compare, under the numbers they have among all.
    """
    places, seeds = stored.places(), _most_seeds(stored, measure)
    head = ["row", stored.grid.rows, *(_title(at, measure) for at in places)]
    labels = {
        label: f"{number}.{place}"
        for place, label in enumerate(stored.grid.axes[stored.grid.rows], start=1)
        if only is None or label in only
    }
    spots = [[{stored.grid.rows: label, **at} for at in places] for label in labels]
    means = [[_mean(stored.scores(measure, spot), seeds) for spot in row] for row in spots]
    rows = []
    for place, (label, row) in enumerate(zip(labels, spots, strict=True)):
        cells: list[writer.Entry] = [labels[label], label]
        for column, spot in enumerate(row):
            beside = means[place] if choosing else [others[column] for others in means]
            text = score_text(stored.scores(measure, spot), seeds, stored.count_diverged(spot))
            strong = _is_highest(means[place][column], beside)
            cells.append(writer.Cell(text, strong=strong))
        rows.append(cells)
    return markdown(head, rows, words=2)


def differences(stored: StoredGrid, measure: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return one row's scores minus another's, paired by seed, for pairs of row labels."""
    places = stored.places()
    head = ["difference", *(_title(at, measure) for at in places)]
    rows = []
    for one, other in pairs:
        by_place = [
            [stored.scores(measure, {stored.grid.rows: row, **at}) for row in (one, other)]
            for at in places
        ]
        rows.append([f"{one} − {other}", *(compare(own, base) for own, base in by_place)])
    return markdown(head, rows)


def chosen(stored: StoredGrid, measure: str) -> dict[str, str]:
    """Return for each row the column whose mean is highest, among those that have every seed."""
    (axis,) = stored.grid.columns
    seeds = _most_seeds(stored, measure)
    best = {}
    for label in stored.grid.axes[stored.grid.rows]:
        found = {
            column: stored.scores(measure, {stored.grid.rows: label, axis: column})
            for column in stored.grid.axes[axis]
        }
        means = {c: spread_of(v.values()).mean for c, v in found.items() if len(v) == seeds}
        if means:
            best[label] = max(means, key=lambda column: means[column])
    return best


def by_class(stored: StoredGrid, measure: str, at: Mapping[str, str], labels: Sequence[str]) -> str:
    """Return a measure of each class, mean ± deviation over seeds, for some rows of the grid."""
    cells = {row["cell"]: row for row in stored.cells}
    found: dict[str, dict[str, list[float]]] = {}
    cases: dict[str, list[float]] = {}
    for row in stored.classes:
        cell = cells.get(row["cell"], {})
        if any(cell.get(axis) != label for axis, label in at.items()) or not row[measure]:
            continue
        label = cell[stored.grid.rows]
        found.setdefault(row["class"], {}).setdefault(label, []).append(float(row[measure]))
        cases.setdefault(row["class"], []).append(float(row["train cases"]))
    rows = [
        [
            name,
            f"{spread_of(cases[name]).mean:.0f}",
            *(score_text(dict(enumerate(found[name].get(label, []))), 0) for label in labels),
        ]
        for name in sorted(found, key=lambda name: -spread_of(cases[name]).mean)
    ]
    return markdown(["class", "training cases", *labels], rows)


def scale(stored: StoredGrid) -> str:
    """Return what was trained, for how long and in which steps, over all cells of the grid."""
    recipes = [cell.recipe for cell in stored.grid.cells]
    images = {int(row["train images"]) for row in stored.cells}
    parts = [
        f"network {_any(r.model.name for r in recipes)}",
        f"{_any(f'{number:,}' for number in sorted(images))} training images",
        f"{_any(r.rounds.number for r in recipes)} rounds of "
        f"{_any(r.local.epochs for r in recipes)} local epochs",
        f"batches of {_any(r.local.batch_size for r in recipes)}",
        f"learning rate {_any(r.local.lr for r in recipes)}",
        f"momentum {_any(r.local.momentum for r in recipes)}",
    ]
    return f"{stored.grid.caption} Scale: {', '.join(parts)}."


def origin(stored: StoredGrid) -> str:
    """Return how a table was produced, and which cells were not run."""
    about = stored.about
    seeds = sorted({int(row["seed"]) for row in stored.cells})
    versions = "; ".join(
        f"fedbb {made['fedbb']}, torch {made['torch']}, numpy {made['numpy']}, "
        f"Python {made['python']}, {made['cores']} cores, {made['vectors']}"
        for made in about["made with"]
    )
    lines = [
        f"`{about['command']}`, seeds {', '.join(map(str, seeds))}; {len(stored.cells)} of "
        f"{len(stored.grid.cells)} cells; {about['core hours']} core hours, one cell per core on "
        f"two cores; {versions}."
    ]
    finished = {row["cell"] for row in [*stored.cells, *stored.diverged]}
    left = [cell for cell in stored.grid.cells if cell.name not in finished]
    if left:
        lines.append(f"Not run: {_listed(left)}.")
    lines += [f"{row['cell']} diverged: {row['why']}." for row in stored.diverged]
    if about["note"]:
        lines.append(about["note"])
    return " ".join(lines)


def _mean(values: Mapping[int, float], seeds: int) -> float:
    """Return the mean as it is shown, NaN for fewer seeds: these are other partitions."""
    return round(100 * spread_of(values.values()).mean, 1) if len(values) == seeds else math.nan


def _is_highest(mean: float, beside: Sequence[float]) -> bool:
    others = [other for other in beside if not math.isnan(other)]
    return len(others) > 1 and mean == max(others)


def _any(values: Iterable[object]) -> str:
    return " or ".join(dict.fromkeys(str(value) for value in values))


def _listed(left: Sequence[Cell], most: int = 6) -> str:
    """Name the cells, or count them by seed if they are many."""
    if len(left) <= most:
        return ", ".join(cell.title for cell in left)
    counted = Counter(cell.seed for cell in left)
    return ", ".join(
        f"{number} {'cell' if number == 1 else 'cells'} of seed {seed}"
        for seed, number in sorted(counted.items())
    )


def _most_seeds(stored: StoredGrid, measure: str) -> int:
    """Return how many seeds the best-filled place of the table has."""
    labels = stored.grid.axes[stored.grid.rows]
    sizes = [
        len(stored.scores(measure, {stored.grid.rows: label, **at}))
        for label in labels
        for at in stored.places()
    ]
    return max(sizes, default=0)


def _title(at: Mapping[str, str], measure: str) -> str:
    return ", ".join(at.values()) if at else measure_title(measure)
