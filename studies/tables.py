"""Tables of Markdown from what is kept of the study: scores, differences by seed, origin."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fedbb.recipes.grid.grid import Cell
from fedbb.report.statistics import Spread, spread_of
from studies.kept import Kept

MISSING = "–"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spelled(measure: str) -> str:
    """Return a measure's name as people write it."""
    return measure.replace("_", " ").replace("auroc", "AUROC")


def told(values: Mapping[int, float], whole: int, diverged: int = 0) -> str:
    """Return mean ± deviation over seeds, in points, and how many seeds if not all."""
    if not values:
        return "diverged" if diverged else MISSING
    spread = spread_of(100 * value for value in values.values())
    others = f", {diverged} diverged" if diverged else ""
    few = f" ({len(values)} of {whole} seeds{others})" if len(values) < whole else ""
    return f"{spread.mean:.1f}{_deviation(spread)}{few}"


def scores(
    kept: Kept,
    measure: str,
    number: str,
    *,
    choosing: bool = False,
    only: Sequence[str] | None = None,
) -> str:
    """Return mean ± deviation over seeds of a measure, a numbered row for each of the grid's.

    The highest mean of each column is bold; that of each row where columns are to choose from.
    With `only` these rows alone are shown and compared, under the numbers they have among all.
    """
    places, whole = kept.places(), _most(kept, measure)
    head = ["row", kept.grid.rows, *(_title(at, measure) for at in places)]
    labels = {
        label: f"{number}.{place}"
        for place, label in enumerate(kept.grid.axes[kept.grid.rows], start=1)
        if only is None or label in only
    }
    spots = [[{kept.grid.rows: label, **at} for at in places] for label in labels]
    means = [[_mean(kept.scores(measure, spot), whole) for spot in row] for row in spots]
    rows = []
    for place, (label, row) in enumerate(zip(labels, spots, strict=True)):
        cells = [labels[label], label]
        for column, spot in enumerate(row):
            beside = means[place] if choosing else [others[column] for others in means]
            cell = told(kept.scores(measure, spot), whole, kept.count_diverged(spot))
            cells.append(f"**{cell}**" if _is_highest(means[place][column], beside) else cell)
        rows.append(cells)
    return markdown(head, rows)


def _mean(values: Mapping[int, float], whole: int) -> float:
    """Return the mean as it is shown, NaN for fewer seeds: these are other partitions."""
    return round(100 * spread_of(values.values()).mean, 1) if len(values) == whole else math.nan


def _is_highest(mean: float, beside: Sequence[float]) -> bool:
    others = [other for other in beside if not math.isnan(other)]
    return len(others) > 1 and mean == max(others)


def differences(kept: Kept, measure: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return one row's scores less another's, paired by seed, for pairs of row labels."""
    places = kept.places()
    head = ["difference, paired by seed", *(_title(at, measure) for at in places)]
    rows = []
    for one, other in pairs:
        cells = [_difference(kept, measure, at, one, other) for at in places]
        rows.append([f"{one} − {other}", *cells])
    return markdown(head, rows)


def chosen(kept: Kept, measure: str) -> dict[str, str]:
    """Return for each row the column whose mean is highest, among those that have every seed."""
    (axis,) = kept.grid.columns
    whole = _most(kept, measure)
    best = {}
    for label in kept.grid.axes[kept.grid.rows]:
        found = {
            column: kept.scores(measure, {kept.grid.rows: label, axis: column})
            for column in kept.grid.axes[axis]
        }
        means = {c: spread_of(v.values()).mean for c, v in found.items() if len(v) == whole}
        if means:
            best[label] = max(means, key=lambda column: means[column])
    return best


def by_class(kept: Kept, measure: str, at: Mapping[str, str], labels: Sequence[str]) -> str:
    """Return a measure of each class, mean ± deviation over seeds, for some rows of the grid."""
    cells = {row["cell"]: row for row in kept.cells}
    found: dict[str, dict[str, list[float]]] = {}
    cases: dict[str, list[float]] = {}
    for row in kept.classes:
        cell = cells.get(row["cell"], {})
        if any(cell.get(axis) != label for axis, label in at.items()) or not row[measure]:
            continue
        label = cell[kept.grid.rows]
        found.setdefault(row["class"], {}).setdefault(label, []).append(float(row[measure]))
        cases.setdefault(row["class"], []).append(float(row["train cases"]))
    rows = [
        [
            name,
            f"{spread_of(cases[name]).mean:.0f}",
            *(told(dict(enumerate(found[name].get(label, []))), 0) for label in labels),
        ]
        for name in sorted(found, key=lambda name: -spread_of(cases[name]).mean)
    ]
    return markdown(["class", "training cases", *labels], rows)


def scale(kept: Kept) -> str:
    """Return what was trained, for how long and in which steps, over all cells of the grid."""
    recipes = [cell.recipe for cell in kept.grid.cells]
    images = {int(row["train images"]) for row in kept.cells}
    parts = [
        f"network {_any(r.model.name for r in recipes)}",
        f"{_any(f'{number:,}' for number in sorted(images))} training images",
        f"{_any(r.rounds.number for r in recipes)} rounds of "
        f"{_any(r.local.epochs for r in recipes)} local epochs",
        f"batches of {_any(r.local.batch_size for r in recipes)}",
        f"learning rate {_any(r.local.lr for r in recipes)}",
        f"momentum {_any(r.local.momentum for r in recipes)}",
    ]
    return f"{kept.grid.caption} Scale: {', '.join(parts)}."


def _any(values: Iterable[object]) -> str:
    return " or ".join(dict.fromkeys(str(value) for value in values))


def origin(kept: Kept) -> str:
    """Return how a table came to be, and what of it was not run."""
    about = kept.about
    seeds = sorted({int(row["seed"]) for row in kept.cells})
    versions = "; ".join(
        f"fedbb {made['fedbb']}, torch {made['torch']}, numpy {made['numpy']}, "
        f"Python {made['python']}, {made['cores']} cores, {made['vectors']}"
        for made in about["made with"]
    )
    lines = [
        f"`{about['command']}`, seeds {', '.join(map(str, seeds))}; {len(kept.cells)} of "
        f"{len(kept.grid.cells)} cells; {about['core hours']} core hours, a cell on each of two "
        f"cores; {versions}."
    ]
    finished = {row["cell"] for row in [*kept.cells, *kept.diverged]}
    left = [cell for cell in kept.grid.cells if cell.name not in finished]
    if left:
        lines.append(f"Not run: {_listed(left)}.")
    lines += [f"{row['cell']} diverged: {row['why']}." for row in kept.diverged]
    if about["note"]:
        lines.append(about["note"])
    return " ".join(lines)


def _listed(left: Sequence[Cell], most: int = 6) -> str:
    """Name the cells, or count them by seed if they are many."""
    if len(left) <= most:
        return ", ".join(cell.title for cell in left)
    counted = Counter(cell.seed for cell in left)
    return ", ".join(
        f"{number} {'cell' if number == 1 else 'cells'} of seed {seed}"
        for seed, number in sorted(counted.items())
    )


def _difference(kept: Kept, measure: str, at: Mapping[str, str], one: str, other: str) -> str:
    own, base = (kept.scores(measure, {kept.grid.rows: row, **at}) for row in (one, other))
    return gap(own, base)


def gap(own: Mapping[int, float], base: Mapping[int, float]) -> str:
    """Return by how many points one is ahead of the other, paired by seed, and how surely."""
    gaps = [100 * (own[seed] - base[seed]) for seed in own if seed in base]
    if not gaps:
        return MISSING
    spread = spread_of(gaps)
    if not any(gaps):
        return "equal"
    mean = f"{spread.mean:+.1f}".replace("-", "−")
    return f"{mean}{_deviation(spread)}, {_verdict(spread, gaps)}"


def _verdict(spread: Spread, gaps: Sequence[float]) -> str:
    """Tell who is ahead, and how surely."""
    if spread.number == 1:
        return "one seed"
    ahead, behind = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    if max(ahead, behind) < spread.number or abs(spread.mean) < spread.deviation:
        return f"tie ({ahead} of {spread.number} ahead)"
    return f"{'ahead' if ahead else 'behind'} on {spread.number} of {spread.number}"


def _deviation(spread: Spread) -> str:
    return "" if math.isnan(spread.deviation) else f" ± {spread.deviation:.1f}"


def _most(kept: Kept, measure: str) -> int:
    """Return how many seeds the best-filled place of the table has."""
    labels = kept.grid.axes[kept.grid.rows]
    sizes = [
        len(kept.scores(measure, {kept.grid.rows: label, **at}))
        for label in labels
        for at in kept.places()
    ]
    return max(sizes, default=0)


def _title(at: Mapping[str, str], measure: str) -> str:
    return ", ".join(at.values()) if at else spelled(measure)
