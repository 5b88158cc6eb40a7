"""Worker processes that stay, take tasks in order, and are replaced when they die.

`WorkerPool` is the parent's side, `work` the side of a worker. What workers do follows from the
set-up they are sent: they train clients (worker.py) or run whole recipes (runs/scheduler.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle
from typing import Any, Protocol

from fedbb.errors import RunError
from fedbb.simulation.pool import process_start
from fedbb.simulation.pool.protocol import (
    ReplyKind,
    WorkerReply,
    pack,
    pack_error,
    pack_setup,
    unpack,
    unpack_setup,
)
from fedbb.training.threads import keep_freed_memory

_NEW_STATE = pack(None)

PATIENCE = 5.0
"""Seconds that a process has to end by itself before it is killed."""

TERMINATE_SECONDS = 1.0
"""Seconds that processes have to end once they are terminated, before they are killed."""


class TaskHandler(Protocol):
    """What a worker does with its tasks."""

    def load_state(self, state: bytes) -> None:
        """Start the following tasks from this state."""
        ...

    def run(self, task: Any, report: Callable[[bytes], None]) -> bytes:
        """Return the result of a task; `report` sends events on the way."""
        ...


class WorkerSetup(Protocol):
    """What a worker begins with; it is pickled and sent to every worker once."""

    def open(self, number: int, connection: Connection) -> TaskHandler:
        """Return, in worker `number`, the handler of its tasks."""
        ...


@dataclass(eq=False)
class Worker:
    """A process, the connection to it, and its task (None while it is idle or not yet ready)."""

    number: int
    process: BaseProcess
    connection: Connection
    task: int | None = None
    ready: bool = False
    version: int = 0


@dataclass(eq=False)
class _Batch:
    """The tasks of one call of `WorkerPool.run`, and how far they have come."""

    tasks: Sequence[Any]
    state: bytes | None
    retries: int
    waiting: deque[int] = field(init=False)
    crashes: list[int] = field(init=False)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = len(self.tasks)
        self.waiting, self.crashes = deque(range(self.left)), [0] * self.left


class WorkerPool:
    """Worker processes with one set-up.

    Args:
        setup: what every worker begins with.
        size: the number of workers.
        handle: the shared memory that the set-up refers to, if any.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        size: int,
        *,
        handle: int | None = None,
    ) -> None:
        self._setup, self._handle = pack_setup(setup), handle
        self._version = 0
        self._early_deaths = 0
        self.workers: list[Worker] = []
        try:
            for number in range(size):
                self.workers.append(self._start(number))
        except BaseException:
            self.close()
            raise

    def run(
        self,
        tasks: Sequence[Any],
        state: bytes | None = None,
        *,
        retries: int = 1,
        release: bool = False,
    ) -> Generator[WorkerReply, None, None]:
        """Run tasks, which begin in their order, and yield what happens to them as it happens.

        Args:
            tasks: what workers are to do; each is pickled.
            state: what all tasks start from; every worker gets it once.
            retries: how often a task is run again whose worker died, before it counts as crashed.
            release: end each worker as soon as no task is left for it; the pool is closed then.

        Raises:
            RunError: the workers were closed, or no worker can start.
        """
        if not self.workers:
            raise RunError("the workers have ended already")
        # A worker that joins in the middle of a batch, or is replaced, needs the state too; the
        # version says whether it has it.
        self._version += 1
        batch = _Batch(tasks, state, retries)
        try:
            while batch.left:
                for worker in list(self.workers):
                    if worker.ready and worker.task is None:
                        yield from self._assign(worker, batch, release)
                for worker in self._heard():
                    yield from self._receive(worker, batch, release)
        finally:
            # Given up half-way, what the workers still do belongs to nothing.
            if batch.left or release:
                self.close()

    def close(self) -> None:
        """End all workers within seconds, whatever they do; a second Ctrl-C kills them at once."""
        workers, self.workers = self.workers, []
        limit = time.monotonic() + TERMINATE_SECONDS
        try:
            for worker in workers:
                worker.process.terminate()
                worker.connection.close()
            for worker in workers:
                worker.process.join(max(0.0, limit - time.monotonic()))
        finally:
            for worker in workers:
                _kill(worker.process)

    def _start(self, number: int) -> Worker:
        ours, theirs = Pipe()
        try:
            process = process_start.start(work, number, theirs)
        except (OSError, RuntimeError) as error:
            raise RunError(f"no worker process could be started: {error}") from error
        # Only with this end closed does the connection break when the process dies.
        theirs.close()
        try:
            ours.send_bytes(self._setup)
            if self._handle is not None:
                send_handle(ours, self._handle, process.pid)
        except OSError:
            pass  # it died already, which the next wait for its reply shows
        except BaseException:
            # Stopped by Ctrl-C: nobody else knows of the process yet, and Python's own exit would
            # wait for it without end.
            ours.close()
            _kill(process)
            raise
        return Worker(number, process, ours)

    def _assign(self, worker: Worker, batch: _Batch, release: bool) -> tuple[WorkerReply, ...]:
        """Give a worker the next task that waits, and say so; end it if there is none to come."""
        if not batch.waiting:
            if release:
                self.workers.remove(worker)
                _end(worker)
            return ()
        if not worker.process.is_alive():  # it died while it was idle: no task is to blame
            return tuple(self._replace(worker, batch))
        number = worker.task = batch.waiting.popleft()
        try:
            if batch.state is not None and worker.version != self._version:
                worker.connection.send_bytes(_NEW_STATE)
                worker.connection.send_bytes(batch.state)
                worker.version = self._version
            worker.connection.send_bytes(pack(batch.tasks[number]))
        except OSError:
            pass  # it died just now; as above
        return (WorkerReply(number, ReplyKind.STARTED),)

    def _heard(self) -> list[Worker]:
        """Wait until some worker has sent something or died."""
        by_connection: dict[Any, Worker] = {
            worker.connection: worker
            for worker in self.workers
            if worker.task is not None or not worker.ready
        }
        return [by_connection[connection] for connection in wait(list(by_connection))]

    def _receive(self, worker: Worker, batch: _Batch, release: bool) -> Iterator[WorkerReply]:
        """Take one message from a worker, or notice its death."""
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            yield from self._replace(worker, batch)
            return
        task, kind, content = worker.task, ReplyKind(message[:1]), message[1:]
        if kind is not ReplyKind.EVENT:
            worker.task, worker.ready = None, True
        if task is None:  # the reply to the set-up
            if kind is ReplyKind.FAILED:
                raise unpack(content)
            return
        if kind is ReplyKind.EVENT:
            yield WorkerReply(task, kind, content)
            return
        # The next task goes out before the caller deals with this result, so that no core waits.
        started = self._assign(worker, batch, release)
        batch.left -= 1
        yield WorkerReply(task, kind, content)
        yield from started

    def _replace(self, worker: Worker, batch: _Batch) -> Iterator[WorkerReply]:
        """Start another worker for one that died, and run its task again or give it up."""
        cause = process_start.cause_of_death(worker.process)
        task = worker.task
        if not worker.ready:
            self._early_deaths += 1
            if self._early_deaths > len(self.workers):
                raise RunError(f"worker processes end before they can begin ({cause})")
        worker.connection.close()
        self.workers[self.workers.index(worker)] = self._start(worker.number)
        if task is None:
            return
        batch.crashes[task] += 1
        if batch.crashes[task] <= batch.retries:
            batch.waiting.appendleft(task)
        else:
            batch.left -= 1
            yield WorkerReply(task, ReplyKind.CRASHED, cause.encode())


def _end(worker: Worker) -> None:
    """Close the connection, upon which a process ends by itself, and wait until it has."""
    worker.connection.close()
    worker.process.join(PATIENCE)
    _kill(worker.process)


def _kill(process: BaseProcess) -> None:
    """Kill a process if it is still alive; a stopped one cannot heed anything milder."""
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def work(number: int, connection: Connection) -> None:
    """Run, in a worker process, tasks until the other side closes the connection."""
    process_start.serve_parent()
    keep_freed_memory()
    try:
        for kind, content in _replies(number, connection):
            connection.send_bytes(kind.value + content)
    except (EOFError, OSError):
        return  # the parent is gone or has no more to do


def _replies(number: int, connection: Connection) -> Iterator[tuple[ReplyKind, bytes]]:
    """Yield a reply to the set-up and to every task after it."""
    try:
        setup: WorkerSetup = unpack_setup(connection.recv_bytes())
        handler = setup.open(number, connection)
    except Exception as error:
        yield ReplyKind.FAILED, pack_error(error)
        return
    yield ReplyKind.DONE, b""

    def report(event: bytes) -> None:
        connection.send_bytes(ReplyKind.EVENT.value + event)

    while True:
        task = unpack(connection.recv_bytes())
        if task is None:  # a new state follows
            handler.load_state(connection.recv_bytes())
            continue
        try:
            reply = ReplyKind.DONE, handler.run(task, report)
        except Exception as error:
            reply = ReplyKind.FAILED, pack_error(error)
        yield reply
