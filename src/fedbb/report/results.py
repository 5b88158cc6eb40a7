"""Run folders read back: found, checked to be whole, and given as records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedbb._util.files import why_unreadable
from fedbb.errors import FedbbError, RunError
from fedbb.evaluation.metrics import Scores
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import FloatArray
from fedbb.rounds.loop import StoppedBy
from fedbb.runs.final_scores import ModelScores, read_scores
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import FEDERATION, FederationRecord
from fedbb.runs.runner import DEFAULT_METRIC

# A run that lost its recipe is reported as damaged, not overlooked.
RUN_FILES = frozenset({"recipe.json", FEDERATION, "rounds.jsonl"})


@dataclass(frozen=True, eq=False)
class ScoredRound:
    """The scores after one round, by set of examples, and how long the round took.

    `sent_bytes` is what all clients sent of their models, if the method compresses.
    """

    number: int
    scores: Mapping[str, Scores]
    seconds: float = 0.0
    sent_bytes: int | None = None


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
    """One run; `summary` is None while it is unfinished.

    `scores` has all scores of the "final" and the "best" model; it is empty in unfinished runs, in
    folders of older versions, and where the server had no data.
    """

    path: Path
    recipe: Recipe
    federation: FederationRecord
    rounds: tuple[ScoredRound, ...]
    summary: Summary | None
    environment: Mapping[str, str]
    scores: Mapping[str, ModelScores] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Time spent in all rounds."""
        return sum(finished.seconds for finished in self.rounds)

    @property
    def sent_bytes(self) -> int | None:
        """What clients sent of their models in all rounds; None if the method does not compress."""
        known = [one.sent_bytes for one in self.rounds if one.sent_bytes is not None]
        return sum(known) if known else None


def refuse_unreadable(error: OSError) -> None:
    """Raise RunError that names a folder that cannot be listed."""
    raise RunError(f"{error.filename} {why_unreadable(error)}") from error


def find_runs(
    path: Path, unreadable: Callable[[OSError], None] = refuse_unreadable
) -> Iterator[Path]:
    """Yield the run folders at or below a folder, in the order of their names.

    Hidden folders, and folders inside a run, are skipped.

    Args:
        path: The folder.
        unreadable: What is called for each folder that cannot be listed; refuses it by default.

    Raises:
        RunError: A folder cannot be listed.
    """
    for place, folders, files in os.walk(path, onerror=unreadable):
        if RUN_FILES & set(files):
            folders.clear()
            yield Path(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def read_run(path: Path | str) -> RunResult:
    """Return the run in this folder; RunError names a folder that is none or is damaged."""
    folder = RunFolder(Path(path))
    folder.check_run()
    try:
        result = _unpack(folder)
        _check(result)
    except (FedbbError, OSError) as error:
        raise RunError(f"run folder {folder.path} cannot be used: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RunError(
            f"run folder {folder.path} is damaged or of another kind: {reason}"
        ) from error
    return result


def read_runs(paths: Iterable[Path | str]) -> list[RunResult]:
    """Return the runs in these folders, in this order."""
    return [read_run(path) for path in paths]


def summary_of(run: RunResult) -> Summary:
    """Return the summary of a run that is known to be finished."""
    assert run.summary is not None
    return run.summary


def summary_so_far(run: RunResult) -> Summary:
    """Return the summary that a run under way would have if it ended at its last round."""
    metric = run.recipe.evaluation.metric or DEFAULT_METRIC[run.federation.task]
    chosen_on = "validation" if "validation" in run.rounds[-1].scores else "test"

    def rank(scored: ScoredRound) -> float:
        value = scored.scores[chosen_on].macro.get(metric, float("nan"))
        return float("-inf") if np.isnan(value) else value

    return Summary(metric, chosen_on, max(run.rounds, key=rank), run.rounds[-1], sha256="")


def score_on_test(scored: ScoredRound, metric: str) -> float:
    """Return a macro metric on test data; NaN where it is undefined or was not scored."""
    return scored.scores["test"].macro.get(metric, float("nan"))


def scores_by_round(runs: Sequence[RunResult], metric: str) -> FloatArray:
    """Return a macro metric on test data, (runs, rounds).

    A run that stopped early keeps its last score, as it keeps its last model; the rounds that an
    unfinished run lacks are NaN.
    """
    rows = [[score_on_test(scored, metric) for scored in run.rounds] for run in runs]
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for run, row, line in zip(runs, rows, table, strict=True):
        line[: len(row)] = row
        if run.summary is not None:
            line[len(row) :] = row[-1]
    return table


def class_counts(runs: Iterable[RunResult]) -> FloatArray:
    """Return the training cases of each class, mean over runs; NaN where they are unknown."""
    return np.asarray(np.mean([run.federation.class_counts for run in runs], axis=0))


def _unpack(folder: RunFolder) -> RunResult:
    finished = folder.file("summary.json").exists()
    environment = folder.read_json("environment.json")
    return RunResult(
        path=folder.path,
        recipe=make_recipe(folder.read_json("recipe.json"), where="recipe.json"),
        federation=FederationRecord.from_json(folder.read_json(FEDERATION), folder),
        rounds=tuple(_round(record) for record in folder.records()),
        summary=_summary(folder.read_json("summary.json")) if finished else None,
        environment={str(name): str(value) for name, value in environment.items()},
        scores=read_scores(folder) if finished else {},
    )


def _round(plain: Mapping[str, Any]) -> ScoredRound:
    scores = {str(name): Scores.from_json(value) for name, value in plain["scores"].items()}
    if "lr" in plain and not isinstance(plain["lr"], float | int):
        raise ValueError(f"lr is {plain['lr']!r}")
    seconds = sum(float(value) for value in plain.get("seconds", {}).values())
    sent = [one["sent_bytes"] for one in plain.get("clients", ()) if "sent_bytes" in one]
    if any(type(number) is not int or number < 0 for number in sent):
        raise ValueError(f"sent_bytes are {sent!r}")
    return ScoredRound(int(plain["round"]), scores, seconds, sum(sent) if sent else None)


def _summary(plain: Mapping[str, Any]) -> Summary:
    if plain.get("stopped") not in (None, *get_args(StoppedBy)):
        raise ValueError(f"stopped is {plain['stopped']!r}")
    return Summary(
        metric=str(plain["metric"]),
        chosen_on=str(plain["best"]["chosen_on"]),
        best=_round(plain["best"]),
        final=_round(plain["final"]),
        sha256=str(plain["sha256"]),
    )


def _check(result: RunResult) -> None:
    """Refuse files that contradict each other, as after a copy that stopped half-way."""
    classes = len(result.federation.classes)
    parts = [client.positives for client in result.federation.known]
    for positives in (result.federation.class_counts, *parts):
        if len(positives) != classes:
            raise RunError(f"federation.json counts {len(positives)} of {classes} classes")
    if [finished.number for finished in result.rounds] != list(range(1, len(result.rounds) + 1)):
        raise RunError("rounds.jsonl does not hold rounds 1, 2, 3 … in order")
    for finished in result.rounds:
        _check_scores(finished, classes)
    if result.summary is not None:
        _check_summary(result.summary, len(result.rounds), classes)
    for scores in result.scores.values():
        if scores.test is not None and scores.test.classes != result.federation.classes:
            raise RunError("scores.json is of other classes than federation.json")


def _check_scores(finished: ScoredRound, classes: int) -> None:
    if "test" not in finished.scores:
        raise RunError(f"round {finished.number} has no scores on test data")
    for scores in finished.scores.values():
        if any(len(vector) != classes for vector in scores.per_class.values()):
            raise RunError(
                f"round {finished.number} has not one score for each of {classes} classes"
            )


def _check_summary(summary: Summary, rounds: int, classes: int) -> None:
    if summary.final.number != rounds:
        raise RunError(f"summary.json has {summary.final.number} rounds, rounds.jsonl {rounds}")
    for scored in (summary.best, summary.final):
        _check_scores(scored, classes)
    if summary.metric not in summary.final.scores["test"].macro:
        raise RunError(f"summary.json names a metric that was not scored: {summary.metric}")
