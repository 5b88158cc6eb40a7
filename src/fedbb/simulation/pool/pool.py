"""The engine that trains clients in parallel worker processes, with the inline engine's bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Self

import numpy as np
import torch

from fedbb.data.dataset import Examples
from fedbb.errors import RunError
from fedbb.evaluation.metrics import Scores, score_logits
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, ModelState, Tensors
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.process_start import usable_cores
from fedbb.simulation.pool.protocol import (
    PredictTask,
    ReplyKind,
    SpillBuffer,
    TrainTask,
    WorkerTask,
    pack_state,
    unpack,
    unpack_update,
)
from fedbb.simulation.pool.worker import TrainingSetup, share_data, without_examples
from fedbb.simulation.pool.worker_pool import WorkerPool
from fedbb.training.config import LocalConfig, TrainJob

NOTHING: Tensors = {}

_PIECES_PER_WORKER = 4
"""Enough that no worker waits long for the last piece, few enough that messages cost nothing."""


def worker_count(local: LocalConfig) -> int:
    """Return how many workers this machine has room for: one per graphics card, or per core."""
    if local.device == "cuda":
        return max(1, torch.cuda.device_count())
    if local.device != "cpu":
        return 1
    return max(1, usable_cores() // local.threads)


class Pool:
    """Does the work of an inline engine in worker processes, and scores states in them too.

    Args:
        engine: the engine to parallelize; its store must be one that several processes can use.
        scored: the examples that states are scored on, by name.
        further: examples that only `outputs` is asked for.
        batch_size: the number of examples per forward pass in scoring.
        workers: the number of worker processes; None: as many as the machine has room for.
    """

    def __init__(
        self,
        engine: Inline,
        scored: Mapping[str, Examples],
        *,
        further: Mapping[str, Examples] | None = None,
        batch_size: int = 256,
        workers: int | None = None,
    ) -> None:
        self.method, self.state_rounds = engine.method, engine.state_rounds
        self.classifier, self.model, self.local = engine.classifier, engine.model, engine.local
        self.batch_size, self._infos = batch_size, engine.client_infos()
        self.workers = workers or worker_count(engine.local)
        held = {**scored, **(further or {})}
        self._labels = {name: part.labels for name, part in held.items()}
        self._scored = tuple(scored)
        self._block = share_data(engine.clients, held)
        setup = TrainingSetup(
            model=engine.model,
            method=engine.method,
            local=engine.local,
            store=engine.store,
            dataset=without_examples(engine.clients[0].dataset),
            batch_size=batch_size,
            places=self._block.places,
            by_client=tuple(engine.by_client),
        )
        # Over the shared arrays, so that the caller can free its own.
        self.clients = setup.clients(self._block.arrays())
        self._pool = WorkerPool(setup, self.workers, handle=self._block.handle)

    def client_infos(self) -> Sequence[ClientInfo]:
        """Return the information about every client."""
        return self._infos

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs in parallel; what is broadcast is one for all."""
        state, broadcast = jobs[0].state, jobs[0].broadcast
        # Broadcasts that are empty need not be the same object.
        sent = broadcast or None
        if any((job.broadcast or None) is not sent for job in jobs):
            raise ValueError("jobs that are trained together must have the same broadcast")
        tasks = [
            TrainTask(
                job.client,
                job.round,
                job.seed,
                self.state_rounds.get(job.client),
                job.measure,
                None if job.state is state else pack_state(job.state, NOTHING),
            )
            for job in jobs
        ]
        turn = 0
        with SpillBuffer(limit=2 * self.workers + 2) as early:
            # Results arrive in any order but are merged in the order of the jobs, on which the
            # bits of a float sum depend. The few that arrive early wait; beyond the limit, on disk.
            for number, result in self._results(tasks, state, broadcast):
                early.put(number, result)
                while turn in early:
                    yield self._unpack(early.take(turn), jobs[turn])
                    turn += 1

    def __call__(self, state: ModelState, network: int = 0) -> dict[str, Scores]:
        """Return the scores of this state, of the network of this number, on all examples."""
        task = self.clients[0].dataset.task
        return {
            name: score_logits(logits, self._labels[name], task)
            for name, logits in self._predict(state, self._scored, network).items()
        }

    def outputs(
        self, state: ModelState, names: Sequence[str] | None = None, network: int = 0
    ) -> dict[str, FloatArray]:
        """Return the logits (N, C) of this state for every set of examples, or for these."""
        return self._predict(state, tuple(self._labels) if names is None else names, network)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()
        self._block.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _results(
        self, tasks: Sequence[WorkerTask], state: ModelState, broadcast: Tensors = NOTHING
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the task, result) as they arrive; raise what went wrong in a worker."""
        with closing(self._pool.run(tasks, pack_state(state, broadcast))) as replies:
            for reply in replies:
                if reply.kind is ReplyKind.DONE:
                    yield reply.task, reply.content
                elif reply.kind is ReplyKind.FAILED:
                    raise unpack(reply.content)
                elif reply.kind is ReplyKind.CRASHED:
                    raise RunError(
                        f"{tasks[reply.task]} ended its worker process twice "
                        f"({reply.content.decode()}); all rounds before are kept"
                    )

    def _unpack(self, result: bytes, job: TrainJob) -> ClientUpdate:
        update, kept = unpack_update(result)
        if kept:
            self.state_rounds[job.client] = job.round
        return update

    def _predict(
        self, state: ModelState, names: Sequence[str], network: int
    ) -> dict[str, FloatArray]:
        tasks = [replace(task, network=network) for name in names for task in self._cut(name)]
        parts: list[FloatArray | None] = [None] * len(tasks)
        for number, result in self._results(tasks, state):
            parts[number] = unpack(result)
        return {
            name: np.concatenate(
                [
                    part
                    for task, part in zip(tasks, parts, strict=True)
                    if task.part == name and part is not None
                ]
            )
            for name in names
        }

    def _cut(self, name: str) -> list[PredictTask]:
        """Cut a set of examples at whole batches, for the same bits as in one piece."""
        total = len(self._labels[name])
        batches = math.ceil(total / self.batch_size)
        step = self.batch_size * math.ceil(batches / (_PIECES_PER_WORKER * self.workers))
        return [
            PredictTask(name, start, min(start + step, total)) for start in range(0, total, step)
        ]
