"""The sanity table of docs/methods.md: what every method scores and costs at one small scale."""

from __future__ import annotations

from collections.abc import Mapping

from fedbb.evaluation.cost import MethodCost, method_cost
from fedbb.methods import METHODS, Method, build_method
from fedbb.recipes.spec import Recipe
from fedbb.report.statistics import spread_of
from studies import tables
from studies.stored import StoredGrid

GRID = "all-methods"
BASE = "FedAvg"
MEASURE = "test accuracy"
CHANCE = 0.1
LEFT_OUT = {
    "fedbn": "keeps batch normalization with the clients, and the small CNN has none",
    "fedfusion": "reads running statistics of batch normalization, and the small CNN has none",
}
"""Methods that the grid cannot hold, and why."""

HEAD = ("method", "accuracy", "against FedAvg", "worst class", "MACs", "bytes")
IMAGE, CLASSES = (1, 28, 28), 10


def missing(stored: StoredGrid) -> list[str]:
    """Return the methods that are neither in the grid nor left out for a reason."""
    held = {part for cell in stored.grid.cells for part in cell.recipe.method.name.split("+")}
    return [name for name in METHODS if name not in held and name not in LEFT_OUT]


def table(stored: StoredGrid) -> str:
    """Return a row for each method of the grid, and which methods it leaves out."""
    recipes = {cell.at["method"]: cell.recipe for cell in stored.grid.cells}
    base = _scores(stored, BASE)
    plain = _cost(recipes[BASE])
    rows = []
    for label, recipe in recipes.items():
        own, cost = _scores(stored, label), _cost(recipe)
        found = [
            tables.score_text(own, len(base), stored.count_diverged({"method": label})),
            tables.MISSING if label == BASE else tables.compare(own, base),
            _worst_class(stored, label),
            f"{cost.training_macs / plain.training_macs:.2f}",
            f"{_bytes(cost, _method(recipe)) / _bytes(plain, _method(recipes[BASE])):.2f}",
        ]
        rows.append([label, *found])
    left = "; ".join(f"`{name}` {why}" for name, why in LEFT_OUT.items())
    return "\n\n".join([tables.markdown(HEAD, rows), f"Left out: {left}.", tables.origin(stored)])


def _method(recipe: Recipe) -> Method:
    """Return the method of a cell; files that it reads are not needed for its cost."""
    files = ("teacher", "prototypes")
    options = {key: value for key, value in recipe.method.options.items() if key not in files}
    return build_method(recipe.method.name, options)


def _cost(recipe: Recipe) -> MethodCost:
    method = _method(recipe)
    return method_cost(method, recipe.model.name, CLASSES, IMAGE)


def _bytes(cost: MethodCost, method: Method) -> int:
    """Return what a client receives and sends in a round in which everything is due."""
    up = cost.sent_bytes if cost.compressed_bytes is None else cost.compressed_bytes
    again = any(statistic.moment == "merged" for statistic in method.statistics)
    down = cost.sent_bytes * (2 if again else 1) + cost.broadcast_bytes
    return down + up + cost.statistics_bytes


def _scores(stored: StoredGrid, label: str) -> Mapping[int, float]:
    return stored.scores(MEASURE, {"method": label})


def _worst_class(stored: StoredGrid, label: str) -> str:
    """Return the lowest recall of a class, as a mean over seeds in points."""
    names = [row["cell"] for row in stored.cells if row["method"] == label]
    by_cell: dict[str, list[float]] = {}
    for row in stored.classes:
        by_cell.setdefault(row["cell"], []).append(float(row["recall"]))
    worst = [min(by_cell[name]) for name in names if name in by_cell]
    return f"{100 * spread_of(worst).mean:.0f}" if worst else tables.MISSING
