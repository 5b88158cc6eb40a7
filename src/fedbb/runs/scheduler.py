"""Many runs in parallel, each in a worker process of its own; their bits do not depend on it.

The processes are those of the simulation's pool, with whole runs as tasks. A process that dies, as
when memory runs out, costs the run it was working on; another takes its place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path

from fedbb._util.plugins import AllowedCode
from fedbb.errors import FedbbError, RunError
from fedbb.recipes.spec import Recipe
from fedbb.runs.folder import Record
from fedbb.runs.runner import run
from fedbb.simulation.pool import process_start
from fedbb.simulation.pool.process_start import usable_cores
from fedbb.simulation.pool.protocol import ReplyKind, WorkerReply, pack, unpack
from fedbb.simulation.pool.worker_pool import WorkerPool

PRELOADED = ("fedbb.runs.scheduler",)
"""What every run imports, and therefore is imported once for all processes."""

SHOWN = 3
"""The failed runs that an error names; one cause may stop them all."""

RunJob = tuple[Recipe, Path]
"""A recipe and the folder it runs in."""


class EventKind(StrEnum):
    """What may happen to a run."""

    BEGUN = "begun"
    WARNING = "warning"
    ROUND = "round"
    FINISHED = "finished"
    FAILED = "failed"


ENDINGS = (EventKind.FINISHED, EventKind.FAILED)


@dataclass(frozen=True)
class RunEvent:
    """What happened to the run of a folder.

    Args:
        path: the folder of the run.
        kind: what happened.
        message: the text of a warning, or why the run failed.
        round: the round that was saved, if that is what happened.
        seconds: how long that round took.
    """

    path: Path
    kind: EventKind
    message: str = ""
    round: int = 0
    seconds: float = 0.0


def prepare() -> None:
    """Have the server that starts the processes begin its imports, while this process goes on."""
    process_start.prepare(*PRELOADED)


def run_all(jobs: Sequence[RunJob], workers: int | None = None) -> Iterator[Path]:
    """Run or resume every job, and yield each folder when its run is finished.

    Raises:
        RunError: some runs failed; raised when the others are finished.
    """
    failed = []
    for event in run_jobs(jobs, workers):
        if event.kind is EventKind.FINISHED:
            yield event.path
        elif event.kind is EventKind.FAILED:
            failed.append(f"{event.path.name}: {event.message}")
    if failed:
        rest = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        raise RunError("; ".join(failed[:SHOWN]) + rest)


def run_jobs(
    jobs: Sequence[RunJob], workers: int | None = None, *, allow_code: AllowedCode = False
) -> Iterator[RunEvent]:
    """Run or resume every job, the first ones first, and yield the events of all as they happen.

    Closing the generator ends the processes; the rounds that were saved by then are kept.

    Args:
        jobs: recipes with their folders.
        workers: the number of worker processes; None: one for each core.
        allow_code: whether recipes may name networks in code, which then runs.
    """
    if not jobs:
        return
    prepare()
    pool = WorkerPool(RunSetup(allow_code), min(workers or usable_cores(), len(jobs)))
    # A run whose process died is not run again: most likely it would die again.
    with closing(pool), closing(pool.run(jobs, retries=0, release=True)) as replies:
        for reply in replies:
            yield from _events(jobs[reply.task][1], reply)


def _events(path: Path, reply: WorkerReply) -> Iterator[RunEvent]:
    """Yield the event of a run that a reply of its worker stands for."""
    match reply.kind:
        case ReplyKind.STARTED:
            yield RunEvent(path, EventKind.BEGUN)
        case ReplyKind.EVENT:
            yield unpack(reply.content)
        case ReplyKind.FAILED:
            error = unpack(reply.content)
            yield RunEvent(path, EventKind.FAILED, f"{type(error).__name__}: {error}")
        case ReplyKind.CRASHED:
            cause = reply.content.decode()
            message = f"its worker process ended unexpectedly ({cause})"
            yield RunEvent(path, EventKind.FAILED, message)


@dataclass(frozen=True)
class RunSetup:
    """The set-up of a worker that runs recipes."""

    allow_code: AllowedCode = False

    def open(self, number: int, connection: Connection) -> RunHandler:
        """Return the handler of jobs."""
        return RunHandler(self.allow_code)


@dataclass(frozen=True)
class RunHandler:
    """Runs one recipe after another in a worker process, and reports how each goes."""

    allow_code: AllowedCode = False

    def load_state(self, state: bytes) -> None:
        """Runs have no state in common."""

    def run(self, task: RunJob, report: Callable[[bytes], None]) -> bytes:
        """Run or resume a job, and report its events."""
        for event in run_job(task, allow_code=self.allow_code):
            report(pack(event))
        return b""


def run_job(job: RunJob, *, allow_code: AllowedCode = False) -> Iterator[RunEvent]:
    """Run or resume a recipe in its folder; an error is an event too."""
    recipe, path = job
    seen: set[str] = set()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            # One process for a run: the others work on runs of their own.
            records = run(recipe.decisive, path, resume=True, workers=1, allow_code=allow_code)
            for record in records:
                yield from _warnings(path, caught, seen)
                yield RunEvent(path, EventKind.ROUND, "", int(record["round"]), seconds_of(record))
            yield from _warnings(path, caught, seen)
    except FedbbError as error:
        yield RunEvent(path, EventKind.FAILED, str(error))
    except Exception as error:
        yield RunEvent(path, EventKind.FAILED, f"{type(error).__name__}: {error}")
    else:
        yield RunEvent(path, EventKind.FINISHED)


def seconds_of(record: Record) -> float:
    """Return how long a round took, from its record."""
    return sum(float(value) for value in record["seconds"].values())


def _warnings(
    path: Path, caught: list[warnings.WarningMessage], seen: set[str]
) -> Iterator[RunEvent]:
    """Yield the warnings that are new."""
    texts = dict.fromkeys(str(warning.message) for warning in caught)
    for text in texts:
        if text not in seen:
            yield RunEvent(path, EventKind.WARNING, text)
    seen.update(texts)
    caught.clear()
