"""Worker processes that stay, get tasks in order, and are replaced when they die."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle
from typing import Any

from fedbb.errors import RunError
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.protocol import DONE, WorkerTask, pack, unpack
from fedbb.simulation.pool.worker import work

_NEW_STATE = pack(None)


@dataclass(eq=False)
class Worker:
    """A process, the way to speak with it, and what it is busy with (None: its own setup)."""

    number: int
    process: BaseProcess
    connection: Connection
    busy: int | None = None
    ready: bool = False
    version: int = 0


class WorkerPool:
    """So many workers with one setup; `handle` is the shared memory that the setup speaks of.

    `when_busy` is called once all of them have started and some have work: until the first answer
    this process has nothing to do, and before it would take their cores.
    """

    def __init__(
        self, setup: bytes, handle: int, size: int, when_busy: Callable[[], None] | None = None
    ) -> None:
        self._setup, self._handle, self._when_busy = setup, handle, when_busy
        self._version = 0
        self._deaths_before_ready = 0
        self._workers = [self._start(number) for number in range(size)]

    def run(self, tasks: Sequence[WorkerTask], state: bytes) -> Iterator[tuple[int, bytes]]:
        """Do tasks that start from one state, and yield (number of the task, answer) as they come.

        Tasks begin in their order. A task whose worker dies is run once more by a new one.
        """
        if not self._workers:
            raise RunError("the workers have ended already")
        self._version += 1
        waiting = deque(range(len(tasks)))
        deaths = [0] * len(tasks)
        left = len(tasks)
        try:
            while left:
                for worker in self._workers:
                    if worker.ready and worker.busy is None and waiting:
                        self._hand(worker, waiting.popleft(), tasks, state)
                if self._when_busy and all(worker.ready for worker in self._workers):
                    self._when_busy()
                    self._when_busy = None
                for worker in self._heard():
                    number, answer = worker.busy, _receive(worker)
                    if answer is None:
                        self._replace(worker, tasks, deaths)
                        waiting.extendleft([] if number is None else [number])
                        continue
                    worker.busy, worker.ready = None, True
                    if number is not None:
                        # The next task goes out before the answer to this one is dealt with.
                        if waiting:
                            self._hand(worker, waiting.popleft(), tasks, state)
                        left -= 1
                        yield number, answer
        finally:
            if left:  # given up half-way: what workers still do belongs to nothing
                self.close()

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
            worker.process.close()
        self._workers = []

    def _start(self, number: int) -> Worker:
        ours, theirs = Pipe()
        process = process_start.start(work, number, theirs)
        theirs.close()
        worker = Worker(number, process, ours)
        try:
            ours.send_bytes(self._setup)
            send_handle(ours, self._handle, process.pid)
        except OSError:
            pass  # it died already, and the next look at it will tell
        return worker

    def _hand(self, worker: Worker, number: int, tasks: Sequence[WorkerTask], state: bytes) -> None:
        worker.busy = number
        try:
            if worker.version != self._version:
                worker.connection.send_bytes(_NEW_STATE)
                worker.connection.send_bytes(state)
                worker.version = self._version
            worker.connection.send_bytes(pack(tasks[number]))
        except OSError:
            pass  # it died while it had nothing to do; as above

    def _heard(self) -> list[Worker]:
        """Wait until some worker has answered or died."""
        by_connection: dict[Any, Worker] = {
            worker.connection: worker
            for worker in self._workers
            if worker.busy is not None or not worker.ready
        }
        return [by_connection[connection] for connection in wait(list(by_connection))]

    def _replace(self, worker: Worker, tasks: Sequence[WorkerTask], deaths: list[int]) -> None:
        cause = process_start.cause_of_death(worker.process)
        if worker.busy is None:
            self._deaths_before_ready += 1
            if self._deaths_before_ready > len(self._workers):
                raise RunError(f"worker processes end before they can begin ({cause})")
        else:
            deaths[worker.busy] += 1
            if deaths[worker.busy] == 2:
                raise RunError(
                    f"{tasks[worker.busy]} ended its worker process twice ({cause}); "
                    "all rounds before are kept"
                )
        worker.connection.close()
        self._workers[worker.number] = self._start(worker.number)


def _receive(worker: Worker) -> bytes | None:
    """Return a worker's answer, None if it died; raise what went wrong in it."""
    try:
        message = worker.connection.recv_bytes()
    except (EOFError, OSError):
        return None
    if message[:1] != DONE:
        raise unpack(message[1:])
    return message[1:]
