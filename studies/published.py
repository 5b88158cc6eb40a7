"""NIID-Bench's published accuracies on CIFAR-10 beside ours at the same settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedbb.report.statistics import spread_of
from fedbb.report.text import signed
from studies.stored import RESULTS, read_stored
from studies.tables import MISSING, markdown, score_text

GRID = "niid-bench"
NEAR = 1.5
"""Points within which a mean of ours counts as the published one."""


@dataclass(frozen=True)
class Published:
    """An accuracy in percent at one place of the grid.

    Attributes:
        partition: Label of the grid's partition.
        method: Label of the grid's method.
        theirs: NIID-Bench's leaderboard, at commit 61b901a.
        flowers: Flower's reproduction, where it has one.
    """

    partition: str
    method: str
    theirs: float
    flowers: float | None = None


LABELS, CLASSES, SIZES = "labels, δ = 0.5", "two classes per client", "sizes, δ = 0.5"
PUBLISHED = (
    Published(LABELS, "FedAvg", 68.2, 62.5),
    Published(LABELS, "FedProx, μ = 0.001", 67.9, 65.6),
    Published(LABELS, "SCAFFOLD", 69.8, 68.1),
    Published(LABELS, "FedNova", 66.8, 63.9),
    Published(CLASSES, "FedAvg", 49.8),
    Published(CLASSES, "FedProx, μ = 0.01", 50.7),
    Published(CLASSES, "SCAFFOLD", 49.1),
    Published(CLASSES, "FedNova", 46.5),
    Published(SIZES, "FedAvg", 72.0),
    Published(SIZES, "FedProx, μ = 0.01", 71.2),
    Published(SIZES, "SCAFFOLD", 62.4),
    Published(SIZES, "FedNova", 10.0),
)


def table(number: str, results: Path = RESULTS) -> str:
    """Return the published accuracies, ours, and whether ours is within 1.5 points."""
    rows = []
    for place, entry in enumerate(PUBLISHED, start=1):
        scores = _ours(entry, results)
        own = MISSING if not scores else score_text(scores, len(scores)) + _seeds(len(scores))
        flowers = MISSING if entry.flowers is None else f"{entry.flowers:.1f}"
        published = [f"{entry.theirs:.1f}", flowers]
        row = [f"{number}.{place}", entry.partition, entry.method, *published]
        rows.append([*row, own, *_judged(entry, scores)])
    head = ["row", "partition", "method", "NIID-Bench", "Flower's reproduction", "ours"]
    return markdown([*head, "ours − NIID-Bench", "within 1.5 points?"], rows, words=3)


def _ours(entry: Published, results: Path) -> dict[int, float]:
    stored = read_stored(GRID, results)
    at = {"partition": entry.partition, "method": entry.method}
    return {} if stored is None else stored.scores("test accuracy", at)


def _seeds(number: int) -> str:
    return f", {number} seed{'s' if number > 1 else ''}"


def _judged(entry: Published, scores: dict[int, float]) -> tuple[str, str]:
    if not scores:
        return MISSING, "not run"
    gap = 100 * spread_of(scores.values()).mean - entry.theirs
    return signed(gap), "yes" if abs(gap) <= NEAR else "no"
