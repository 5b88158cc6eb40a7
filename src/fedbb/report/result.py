"""The records of a run as a report reads them from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedbb.evaluation.metrics import Scores
from fedbb.recipes.spec import Recipe
from fedbb.records import Task


@dataclass(frozen=True)
class ClientShare:
    """What one client held and how much it counted; `positives` has one entry per class."""

    client: int
    samples: int
    dispersion: float | None
    weight: float
    weight_by_samples: float
    positives: tuple[float, ...]


@dataclass(frozen=True)
class FederationFacts:
    """The data as the clients shared it; `train` counts samples, `positives` cases per class.

    Where aggregation was secure, cases are NaN and clients are `hidden`: only their number is told.
    """

    data: str
    task: Task
    classes: tuple[str, ...]
    train: int
    positives: tuple[float, ...]
    clients: tuple[ClientShare, ...]
    notes: tuple[str, ...] = ()
    hidden: int = 0

    @property
    def number(self) -> int:
        """How many clients there are, hidden or not."""
        return len(self.clients) + self.hidden


@dataclass(frozen=True, eq=False)
class ScoredRound:
    """The scores after one round, by set of examples, and how long the round took."""

    number: int
    scores: Mapping[str, Scores]
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Summary:
    """How a finished run ended, and its best round by `metric` on the set `chosen_on`."""

    metric: str
    chosen_on: str
    best: ScoredRound
    final: ScoredRound
    sha256: str


@dataclass(frozen=True, eq=False)
class RunResult:
    """One run; `summary` is None while it is unfinished."""

    path: Path
    recipe: Recipe
    federation: FederationFacts
    rounds: tuple[ScoredRound, ...]
    summary: Summary | None
    environment: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """Time spent in all rounds."""
        return sum(finished.seconds for finished in self.rounds)
