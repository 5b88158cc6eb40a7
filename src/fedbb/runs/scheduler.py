"""Many runs side by side in a few processes; bits do not depend on how many.

A process that dies, as when memory runs out, costs the run it had at hand; another takes its place.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fedbb.errors import RunError
from fedbb.runs.run_worker import ENDINGS, Kind, News, work
from fedbb.runs.run_worker import RunJob as RunJob
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.cores import usable_cores

PRELOADED = ("fedbb.runs.run_worker", "sklearn.metrics")
"""What every run imports, and therefore is imported once for all processes."""

PATIENCE = 5.0
"""Seconds that a process has to end by itself."""


def prepare() -> None:
    """Have whatever starts the processes begin its imports, while this one goes on."""
    process_start.prepare(*PRELOADED)


def run_all(jobs: Sequence[RunJob], workers: int | None = None) -> Iterator[Path]:
    """Run or go on with every job, and yield each folder when its run is finished.

    Runs that failed are told of when the others are finished.
    """
    failed = []
    for news in run_jobs(jobs, workers):
        if news.kind is Kind.FINISHED:
            yield news.path
        elif news.kind is Kind.FAILED:
            failed.append(f"{news.path.name}: {news.message}")
    if failed:
        raise RunError("; ".join(failed))


def run_jobs(jobs: Sequence[RunJob], workers: int | None = None) -> Iterator[News]:
    """Run or go on with every job, the first ones first, and yield the news of all as they come."""
    prepare()
    waiting = deque(jobs)
    hands: list[_Hand] = []
    try:
        for _ in range(min(workers or usable_cores(), len(jobs))):
            hands.append(_hire(waiting.popleft()))
            yield News(hands[-1].job[1], Kind.BEGUN)
        while hands:
            ready = wait([hand.line for hand in hands])
            for hand in [hand for hand in hands if hand.line in ready]:
                news = _hear(hand)
                yield news
                if news.kind in ENDINGS:
                    yield from _follow(hand, hands, waiting)
    finally:
        for hand in hands:
            hand.process.terminate()
        for hand in hands:
            hand.process.join(PATIENCE)
            hand.line.close()


@dataclass(frozen=True)
class _Hand:
    """A process at work on a job, and the line to it."""

    process: BaseProcess
    line: Connection
    job: RunJob


def _hire(job: RunJob) -> _Hand:
    line, far = multiprocessing.Pipe()
    try:
        hand = _Hand(process_start.start(work, far), line, job)
    except (OSError, RuntimeError) as error:
        raise RunError(f"no process could be started: {error}") from error
    # Only with this end closed does the line break when the process dies.
    far.close()
    _give(hand, job)
    return hand


def _hear(hand: _Hand) -> News:
    """Take one piece of news from a process; that it died is the last."""
    try:
        news: News = hand.line.recv()
    except (EOFError, OSError):
        hand.line.close()
        cause = process_start.cause_of_death(hand.process)
        return News(hand.job[1], Kind.FAILED, f"its process ended before its time ({cause})")
    return news


def _follow(hand: _Hand, hands: list[_Hand], waiting: deque[RunJob]) -> Iterator[News]:
    """Give the next job to a process that is done with its own, or to one that replaces it."""
    hands.remove(hand)
    if not waiting:
        _give(hand, None)
        hand.process.join(PATIENCE)
        hand.line.close()
        return
    job = waiting.popleft()
    if hand.line.closed:
        hands.append(_hire(job))
    else:
        hands.append(replace(hand, job=job))
        _give(hand, job)
    yield News(job[1], Kind.BEGUN)


def _give(hand: _Hand, job: RunJob | None) -> None:
    """Send a job; that a process is gone is found out when its answer is waited for."""
    with suppress(OSError):
        hand.line.send(job)
