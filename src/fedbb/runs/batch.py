"""Many runs side by side, each in a process of its own; bits do not depend on how many."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from fedbb.errors import RunError
from fedbb.recipes.spec import Recipe
from fedbb.runs.runner import run

Job = tuple[Recipe, Path]


def run_all(jobs: Sequence[Job], workers: int | None = None) -> Iterator[Path]:
    """Run or go on with every job, and yield each folder when its run is finished."""
    pool = ProcessPoolExecutor(
        max_workers=min(workers or usable_cores(), max(1, len(jobs))),
        # Not fork: torch's threads do not survive it.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_leave_signals_to_parent,
    )
    try:
        waiting = {pool.submit(_run_job, job): job[1] for job in jobs}
        for done in as_completed(waiting):
            done.result()
            yield waiting[done]
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        if isinstance(error, OSError | RuntimeError):
            raise RunError(f"a run's process ended before its time: {error}") from error
        raise
    finally:
        pool.shutdown()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_job(job: Job) -> None:
    recipe, path = job
    for _ in run(recipe, path, resume=True):
        pass


def _leave_signals_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
