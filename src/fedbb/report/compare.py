"""Two sides beside each other: settings, scores, classes that won and lost, client weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.records import FloatArray, Task
from fedbb.report.interval import Interval, interval_of
from fedbb.report.result import RunResult, ScoredRound
from fedbb.report.sides import Side, settings_of
from fedbb.report.spread import Spread, spread_columns, spread_of
from fedbb.report.tables import score_on_test, summary_of
from fedbb.report.wording import TASK_METRICS


@dataclass(frozen=True)
class Setting:
    """A setting that differs; None where a side does not have it."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Gap:
    """B − A: over `pairs` of equal seeds, or between the means if there is no pair.

    `ahead` and `behind` count the pairs in which B scores higher and lower.
    """

    mean: float
    interval: Interval
    pairs: int
    ahead: int
    behind: int


@dataclass(frozen=True)
class Score:
    """A macro test score of both sides over their seeds, after the `final` or `best` round."""

    metric: str
    which: str
    a: Spread
    b: Spread
    gap: Gap


@dataclass(frozen=True)
class ClassScore:
    """A class's test score after the last round, mean over seeds, and its training cases."""

    name: str
    cases: float
    a: float
    b: float
    gap: float


@dataclass(frozen=True)
class ClientWeights:
    """How much a client counts on either side, with its samples there."""

    client: int
    samples: tuple[int, int]
    a: float
    b: float


@dataclass(frozen=True, eq=False)
class Contrast:
    """All that tells two sides apart; `classes` go from the greatest gain to the greatest loss."""

    a: Side
    b: Side
    settings: tuple[Setting, ...]
    scores: tuple[Score, ...]
    class_metric: str
    classes: tuple[ClassScore, ...]
    clients: tuple[ClientWeights, ...]
    seed_of_clients: int

    @property
    def shared(self) -> tuple[int, ...]:
        """The seeds that both sides have."""
        return shared_seeds(self.a, self.b)


def contrast(a: Side, b: Side, metrics: Sequence[str] = ()) -> Contrast:
    """Compare two sides by these macro metrics, by default those that suit the task."""
    chosen = _choose(a, b, metrics)
    class_metric = _class_metric(a, b, chosen[0])
    one, other, seed = _example(a, b)
    return Contrast(
        a=a,
        b=b,
        settings=_settings(a.runs[0], b.runs[0]),
        scores=tuple(
            _score(a, b, metric, which) for metric in chosen for which in ("final", "best")
        ),
        class_metric=class_metric,
        classes=_classes(a, b, class_metric),
        clients=_clients(one, other),
        seed_of_clients=seed,
    )


def shared_seeds(a: Side, b: Side) -> tuple[int, ...]:
    """Return the seeds that both sides have."""
    return tuple(seed for seed in a.seeds if seed in b.seeds)


def _choose(a: Side, b: Side, metrics: Sequence[str]) -> tuple[str, ...]:
    theirs = _final(b.runs[0]).scores["test"].macro
    known = [name for name in _final(a.runs[0]).scores["test"].macro if name in theirs]
    for metric in metrics:
        if metric not in known:
            raise RecipeError(f"metric {metric!r} is unknown{nearest(metric, known)}")
    suited = TASK_METRICS[a.runs[0].federation.task]
    return tuple(metrics) or tuple(name for name in suited if name in known)


def _class_metric(a: Side, b: Side, metric: str) -> str:
    task = a.runs[0].federation.task
    wanted = (metric, "recall" if task is Task.MULTICLASS else "auroc")
    vectors = [_final(side.runs[0]).scores["test"].per_class for side in (a, b)]
    return next((name for name in wanted if all(name in found for found in vectors)), "")


def _settings(a: RunResult, b: RunResult) -> tuple[Setting, ...]:
    old, new = settings_of(a), settings_of(b)
    keys = [*old, *(key for key in new if key not in old)]
    return tuple(
        Setting(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)
    )


def _score(a: Side, b: Side, metric: str, which: str) -> Score:
    ours, theirs = (
        {
            run.recipe.seed: score_on_test(getattr(summary_of(run), which), metric)
            for run in side.runs
        }
        for side in (a, b)
    )
    spreads = spread_of(ours.values()), spread_of(theirs.values())
    gaps = [theirs[seed] - ours[seed] for seed in shared_seeds(a, b)]
    return Score(metric, which, *spreads, _gap(gaps, spreads[1].mean - spreads[0].mean))


def _gap(gaps: Sequence[float], otherwise: float) -> Gap:
    spread = spread_of(gaps)
    return Gap(
        mean=spread.mean if spread.number else otherwise,
        interval=interval_of(gaps),
        pairs=spread.number,
        ahead=sum(gap > 0 for gap in gaps),
        behind=sum(gap < 0 for gap in gaps),
    )


def _classes(a: Side, b: Side, metric: str) -> tuple[ClassScore, ...]:
    """Return the scores of each class over the seeds of both; none if the classes differ."""
    names = a.runs[0].federation.classes
    if not metric or any(run.federation.classes != names for run in (*a.runs, *b.runs)):
        return ()
    seeds = shared_seeds(a, b)
    ours, theirs = (_class_means(side, seeds or side.seeds, metric) for side in (a, b))
    cases = np.mean([run.federation.positives for run in a.runs], axis=0)
    columns = zip(names, cases, ours, theirs, theirs - ours, strict=True)
    found = [ClassScore(name, *map(float, values)) for name, *values in columns]
    return tuple(sorted(found, key=lambda line: (bool(np.isnan(line.gap)), -line.gap)))


def _class_means(side: Side, seeds: Sequence[int], metric: str) -> FloatArray:
    rounds = [_final(side.of_seed(seed)) for seed in seeds]
    means, _ = spread_columns(np.array([r.scores["test"].per_class[metric] for r in rounds]))
    return means


def _clients(a: RunResult, b: RunResult) -> tuple[ClientWeights, ...]:
    """Return the weights client by client; none if the sides have not the same clients."""
    ours, theirs = ({share.client: share for share in run.federation.clients} for run in (a, b))
    if ours.keys() != theirs.keys():
        return ()
    return tuple(
        ClientWeights(
            client,
            (share.samples, theirs[client].samples),
            share.weight,
            theirs[client].weight,
        )
        for client, share in ours.items()
    )


def _example(a: Side, b: Side) -> tuple[RunResult, RunResult, int]:
    """Return a run of each side, of the same seed if there is one, and the seed of A's."""
    for seed in shared_seeds(a, b):
        return a.of_seed(seed), b.of_seed(seed), seed
    return a.runs[0], b.runs[0], a.seeds[0]


def _final(run: RunResult) -> ScoredRound:
    return summary_of(run).final
