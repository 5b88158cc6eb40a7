"""A process that runs one recipe after another and tells how each goes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path

from fedbb.errors import FedbbError
from fedbb.recipes.spec import Recipe
from fedbb.runs.folder import Record
from fedbb.runs.runner import run
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.malloc import keep_freed_memory

RunJob = tuple[Recipe, Path]


class Kind(StrEnum):
    """What may happen to a run."""

    BEGUN = "begun"
    WARNING = "warning"
    ROUND = "round"
    FINISHED = "finished"
    FAILED = "failed"


ENDINGS = (Kind.FINISHED, Kind.FAILED)


@dataclass(frozen=True)
class News:
    """What happened to the run of a folder; `round` is the last one saved, if that was it."""

    path: Path
    kind: Kind
    message: str = ""
    round: int = 0
    seconds: float = 0.0


def work(line: Connection) -> None:
    """Run the jobs that come down the line, and send back the news of each, until None comes."""
    process_start.serve_parent()
    keep_freed_memory()
    try:
        while (job := line.recv()) is not None:
            for news in run_job(job):
                line.send(news)
    except (EOFError, OSError):
        return  # the parent is gone, and with it whoever wanted to know


def run_job(job: RunJob) -> Iterator[News]:
    """Run or go on with a recipe in its folder; whatever goes wrong is news too."""
    recipe, path = job
    told: set[str] = set()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            # One process for a run: the others are at work on runs of their own.
            for record in run(recipe.decisive, path, resume=True, workers=1):
                yield from _warned(path, caught, told)
                yield News(path, Kind.ROUND, "", int(record["round"]), seconds_of(record))
            yield from _warned(path, caught, told)
    except FedbbError as error:
        yield News(path, Kind.FAILED, str(error))
    except Exception as error:
        yield News(path, Kind.FAILED, f"{type(error).__name__}: {error}")
    else:
        yield News(path, Kind.FINISHED)


def seconds_of(record: Record) -> float:
    """Return what a round took, from its record."""
    return sum(float(value) for value in record["seconds"].values())


def _warned(path: Path, caught: list[warnings.WarningMessage], told: set[str]) -> Iterator[News]:
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        if text not in told:
            yield News(path, Kind.WARNING, text)
    told.update(str(warning.message) for warning in caught)
    caught.clear()
