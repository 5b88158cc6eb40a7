"""Two runs or groups of runs: differences of settings, scores, classes and client weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedbb._util.files import finite_or_none
from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.records import FloatArray, Task
from fedbb.report.groups import MethodRuns, settings_of
from fedbb.report.results import RunResult, ScoredRound, class_counts, score_on_test, summary_of
from fedbb.report.statistics import (
    PairedDifference,
    Spread,
    head_and_tail,
    paired_difference,
    spread_columns,
    spread_of,
)
from fedbb.report.text import TASK_METRICS, metric_title, signed, verdict_clause


@dataclass(frozen=True)
class Setting:
    """A setting that differs; None where a group does not have it."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Score:
    """A macro test score of both groups over their seeds, after the `final` or `best` round.

    `paired` is B − A over the seeds that both have.
    """

    metric: str
    which: str
    a: Spread
    b: Spread
    paired: PairedDifference

    @property
    def gap(self) -> float:
        """B − A: of pairs of equal seeds, or of the means if there is no pair."""
        return self.paired.spread.mean if self.paired.seeds else self.b.mean - self.a.mean


@dataclass(frozen=True)
class ClassScore:
    """A class's test score after the last round, mean over seeds, and its training cases.

    `part` is "head", "tail" or empty.
    """

    name: str
    cases: float
    a: float
    b: float
    gap: float
    part: str = ""


@dataclass(frozen=True)
class GainCounts:
    """How many classes score higher and lower in group B, and how many alike."""

    won: int
    lost: int
    alike: int


@dataclass(frozen=True)
class ClientWeights:
    """The weight of a client in either group, with its samples there."""

    client: int
    samples: tuple[int, int]
    a: float
    b: float


@dataclass(frozen=True, eq=False)
class GroupComparison:
    """All differences of two groups; `classes` go from the greatest gain to the greatest loss."""

    a: MethodRuns
    b: MethodRuns
    settings: tuple[Setting, ...]
    scores: tuple[Score, ...]
    class_metric: str
    classes: tuple[ClassScore, ...]
    clients: tuple[ClientWeights, ...]
    seed_of_clients: int

    @property
    def shared(self) -> tuple[int, ...]:
        """The seeds that both groups have."""
        return shared_seeds(self.a, self.b)

    def classes_of(self, part: str) -> list[ClassScore]:
        """Return the classes of the head or of the tail."""
        return [line for line in self.classes if line.part == part]


def compare_groups(a: MethodRuns, b: MethodRuns, metrics: Sequence[str] = ()) -> GroupComparison:
    """Compare two groups of runs.

    Args:
        a: The first group; differences are B − A.
        b: The second group.
        metrics: Macro metrics, the first of which decides the verdict; by default the task's.

    Returns:
        The scores of both groups, paired differences with intervals, and the verdict.

    Raises:
        RecipeError: A metric is unknown.
    """
    chosen = _choose(a, b, metrics)
    class_metric = _class_metric(a, b, chosen[0])
    one, other, seed = _example(a, b)
    return GroupComparison(
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


def shared_seeds(a: MethodRuns, b: MethodRuns) -> tuple[int, ...]:
    """Return the seeds that both groups have."""
    return tuple(seed for seed in a.seeds if seed in b.seeds)


def verdict(found: GroupComparison) -> str:
    """Return the verdict by the first metric after the last round, in a sentence."""
    score = found.scores[0]
    title = metric_title(score.metric)
    if math.isnan(score.gap):
        return f"No seed has a {title} of both A and B."
    if not score.paired.seeds:
        size = f"{signed(100 * score.gap)} points of {title}"
        return f"B − A is {size}; there is no common seed, which allows no verdict."
    return f"B {verdict_clause(score.paired, 'A', f'points of {title}')}."


def notes(found: GroupComparison) -> list[str]:
    """Return what a reader must know besides the numbers."""
    groups = {"A": found.a, "B": found.b}
    lines = [f"{name}: {note}" for name, part in groups.items() for note in part.notes]
    return lines + list(_cautions(found))


def count_gains(classes: Sequence[ClassScore]) -> GainCounts:
    """Count the classes that gain and lose; undefined ones are not counted."""
    gaps = [line.gap for line in classes if not math.isnan(line.gap)]
    won, lost = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    return GainCounts(won, lost, len(gaps) - won - lost)


def as_json(found: GroupComparison) -> dict[str, Any]:
    """Return the whole comparison as plain values, with None for what is undefined."""
    parts = {"head": found.classes_of("head"), "tail": found.classes_of("tail")}
    gains = {name: count_gains(part) for name, part in {"all": found.classes, **parts}.items()}
    plain: dict[str, Any] = finite_or_none(
        {
            "format": "fedbb-compare-1",
            "a": _plain_group(found.a),
            "b": _plain_group(found.b),
            "verdict": verdict(found),
            "settings": found.settings,
            "scores": [_plain_score(score) for score in found.scores],
            "class_metric": found.class_metric,
            "classes": found.classes,
            "tally": gains,
            "clients": found.clients,
            "notes": notes(found),
        }
    )
    return plain


def _choose(a: MethodRuns, b: MethodRuns, metrics: Sequence[str]) -> tuple[str, ...]:
    theirs = _final(b.runs[0]).scores["test"].macro
    known = [name for name in _final(a.runs[0]).scores["test"].macro if name in theirs]
    for metric in metrics:
        if metric not in known:
            raise RecipeError(f"metric {metric!r} is unknown{nearest(metric, known)}")
    suited = TASK_METRICS[a.runs[0].federation.task]
    return tuple(metrics) or tuple(name for name in suited if name in known)


def _class_metric(a: MethodRuns, b: MethodRuns, metric: str) -> str:
    task = a.runs[0].federation.task
    wanted = (metric, "recall" if task is Task.MULTICLASS else "auroc")
    vectors = [_final(part.runs[0]).scores["test"].per_class for part in (a, b)]
    return next((name for name in wanted if all(name in found for found in vectors)), "")


def _settings(a: RunResult, b: RunResult) -> tuple[Setting, ...]:
    old, new = (settings_of(run.recipe, method=True) for run in (a, b))
    keys = [*old, *(key for key in new if key not in old)]
    return tuple(
        Setting(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)
    )


def _score(a: MethodRuns, b: MethodRuns, metric: str, which: str) -> Score:
    def score(run: RunResult) -> float:
        return score_on_test(getattr(summary_of(run), which), metric)

    ours, theirs = a.scores(score), b.scores(score)
    paired = paired_difference(theirs, ours)
    return Score(metric, which, spread_of(ours.values()), spread_of(theirs.values()), paired)


def _classes(a: MethodRuns, b: MethodRuns, metric: str) -> tuple[ClassScore, ...]:
    """Return the scores of each class over the seeds of both; none if the classes differ."""
    names = a.runs[0].federation.classes
    if not metric or any(run.federation.classes != names for run in (*a.runs, *b.runs)):
        return ()
    seeds = shared_seeds(a, b)
    ours, theirs = (_class_means(part, seeds or part.seeds, metric) for part in (a, b))
    counts = class_counts(a.runs)
    head, tail = head_and_tail(counts)
    parts = dict.fromkeys(head.tolist(), "head") | dict.fromkeys(tail.tolist(), "tail")
    columns = zip(names, counts.tolist(), ours.tolist(), theirs.tolist(), strict=True)
    found = [
        ClassScore(name, cases, old, new, new - old, parts.get(place, ""))
        for place, (name, cases, old, new) in enumerate(columns)
    ]
    return tuple(sorted(found, key=lambda line: (bool(np.isnan(line.gap)), -line.gap)))


def _class_means(part: MethodRuns, seeds: Sequence[int], metric: str) -> FloatArray:
    rounds = [_final(part.of_seed(seed)) for seed in seeds]
    means, _ = spread_columns(np.array([r.scores["test"].per_class[metric] for r in rounds]))
    return means


def _clients(a: RunResult, b: RunResult) -> tuple[ClientWeights, ...]:
    """Return the weights client by client; none if the groups have different clients."""
    ours, theirs = ({share.client: share for share in run.federation.known} for run in (a, b))
    if ours.keys() != theirs.keys():
        return ()
    return tuple(
        ClientWeights(
            client, (share.samples, theirs[client].samples), share.weight, theirs[client].weight
        )
        for client, share in ours.items()
    )


def _example(a: MethodRuns, b: MethodRuns) -> tuple[RunResult, RunResult, int]:
    """Return a run of each group, of the same seed if there is one, and the seed of A's."""
    for seed in shared_seeds(a, b):
        return a.of_seed(seed), b.of_seed(seed), seed
    return a.runs[0], b.runs[0], a.seeds[0]


def _cautions(found: GroupComparison) -> Iterator[str]:
    if _data(found.a) != _data(found.b):
        yield "the groups are scored on different data, so their scores are hardly comparable"
    if found.a.seeds != found.b.seeds:
        shared = ", ".join(map(str, found.shared)) or "none"
        yield f"seeds in common: {shared}; differences are over those"
    if _are_identical(found):
        yield "both groups end with bit-identical models"
    if "test" in {summary_of(run).chosen_on for run in (*found.a.runs, *found.b.runs)}:
        yield "best rounds were chosen on test data, so their scores are optimistic"
    if not found.classes:
        yield "the groups have different classes, so classes are not compared"
    if not found.clients:
        yield "the groups have different clients, so weights are not compared"


def _data(part: MethodRuns) -> tuple[object, ...]:
    data = part.runs[0].recipe.data
    return data.name, data.path, data.options, part.runs[0].federation.task


def _are_identical(found: GroupComparison) -> bool:
    pairs = [(found.a.of_seed(seed), found.b.of_seed(seed)) for seed in found.shared]
    return bool(pairs) and all(summary_of(a).sha256 == summary_of(b).sha256 for a, b in pairs)


def _plain_group(part: MethodRuns) -> dict[str, Any]:
    return {
        "given": part.label,
        "runs": [str(run.path) for run in part.runs],
        "seeds": list(part.seeds),
        "method": part.method,
        "data": part.runs[0].federation.data,
    }


def _plain_score(score: Score) -> dict[str, Any]:
    paired = score.paired
    gap = {
        "mean": score.gap,
        "interval": asdict(paired.interval),
        "pairs": len(paired.seeds),
        "ahead": paired.ahead,
        "behind": paired.behind,
        "verdict": paired.verdict,
    }
    return {"metric": score.metric, "which": score.which, "a": score.a, "b": score.b, "gap": gap}


def _final(run: RunResult) -> ScoredRound:
    return summary_of(run).final
