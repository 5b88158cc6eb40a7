"""A worker process: one network, the data mapped, a task at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

import torch

from fedbb.evaluation.evaluator import Scorer
from fedbb.records import ModelState
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.malloc import keep_freed_memory
from fedbb.simulation.pool.protocol import (
    DONE,
    FAILED,
    PredictTask,
    TrainTask,
    WorkerTask,
    pack,
    pack_error,
    pack_update,
    unpack,
    unpack_state,
)
from fedbb.simulation.pool.setup import Setup
from fedbb.state import restore
from fedbb.training.config import TrainJob


def work(number: int, connection: Connection) -> None:
    """Serve tasks until the other side closes the connection."""
    process_start.serve_parent()
    keep_freed_memory()
    try:
        for answer in _answers(number, connection):
            connection.send_bytes(answer)
    except (EOFError, OSError):
        return  # the parent is gone or has no more to do


def _answers(number: int, connection: Connection) -> Iterator[bytes]:
    """Yield an answer for the setup and for every task after it."""
    try:
        setup = unpack(connection.recv_bytes())
        assert isinstance(setup, Setup)
        torch.set_num_threads(setup.plan.threads)
        _place(number, setup.plan.device)
        bench = WorkerRuntime(*setup.assemble(recv_handle(connection)))
    except Exception as error:
        yield FAILED + pack_error(error)
        return
    yield DONE
    while True:
        task = unpack(connection.recv_bytes())
        if task is None:  # a new state follows
            bench.take(unpack_state(connection.recv_bytes()))
            continue
        try:
            answer = DONE + bench.do(task)
        except Exception as error:
            answer = FAILED + pack_error(error)
        yield answer


def _place(number: int, device: str) -> None:
    """Give a worker its own graphics card, if it is to compute on any."""
    if device == "cuda":
        torch.cuda.set_device(number % torch.cuda.device_count())


@dataclass
class WorkerRuntime:
    """The engine and the scorer of a worker, and the state that its tasks start from."""

    engine: Inline
    scorer: Scorer
    state: ModelState | None = None

    def take(self, state: ModelState) -> None:
        """Start from this state from now on."""
        self.state = state

    def do(self, task: WorkerTask) -> bytes:
        """Return the answer to a task."""
        assert self.state is not None
        match task:
            case TrainTask():
                return self._train(task, self.state)
            case PredictTask():
                restore(self.scorer.model, self.state)
                part = self.scorer.examples[task.part]
                return pack(self.scorer.predict(part, task.start, task.stop))

    def _train(self, task: TrainTask, state: ModelState) -> bytes:
        state_rounds = self.engine.state_rounds
        # What another worker did with this client in the meantime is known to the parent only.
        state_rounds.clear()
        if task.since is not None:
            state_rounds[task.client] = task.since
        (update,) = self.engine.train([TrainJob(task.client, task.round, task.seed, state)])
        return pack_update(update, kept=state_rounds.get(task.client) == task.round)
