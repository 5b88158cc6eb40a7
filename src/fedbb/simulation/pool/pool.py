"""The fast engine: clients side by side in processes that stay, with the inline engine's bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from threading import Thread
from typing import Self

import numpy as np
import torch

from fedbb.data.dataset import Examples
from fedbb.evaluation import metrics
from fedbb.evaluation.evaluator import score_logits
from fedbb.evaluation.metrics import Scores
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, ModelState
from fedbb.simulation.base import make_client_infos
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.cores import usable_cores
from fedbb.simulation.pool.protocol import (
    PredictTask,
    TrainTask,
    pack,
    pack_state,
    unpack,
    unpack_update,
)
from fedbb.simulation.pool.reorder_buffer import SpillBuffer
from fedbb.simulation.pool.setup import Setup, bare, share_data
from fedbb.simulation.pool.worker_pool import WorkerPool
from fedbb.training.config import LocalConfig, TrainJob

# Enough pieces that no worker waits long for the last one, few enough that messages cost nothing.
_PIECES_PER_WORKER = 4


def worker_count(plan: LocalConfig) -> int:
    """Return how many workers this machine has room for: one per graphics card, or per core."""
    if plan.device == "cuda":
        return max(1, torch.cuda.device_count())
    if plan.device != "cpu":
        return 1
    return max(1, usable_cores() // plan.threads)


class Pool:
    """Does what an inline engine would do, with so many workers; scores by them too.

    The engine's store must be one that several processes can use.
    """

    def __init__(
        self,
        engine: Inline,
        scored: Mapping[str, Examples],
        *,
        batch_size: int = 256,
        workers: int | None = None,
    ) -> None:
        self.method, self.state_rounds = engine.method, engine.state_rounds
        self.batch_size = batch_size
        self.workers = workers or worker_count(engine.plan)
        self._labels = {name: part.labels for name, part in scored.items()}
        self._block = share_data(engine.shares, scored)
        setup = Setup(
            model=engine.model,
            method=engine.method,
            plan=engine.plan,
            store=engine.store,
            dataset=bare(engine.shares[0].dataset),
            batch_size=batch_size,
            places=self._block.places,
        )
        # Over the shared arrays, so that the caller may let go of its own.
        self.shares = setup.shares(self._block.arrays())
        # The first scores need imports that take as long as torch's.
        importing = Thread(target=metrics.prepare, name="scoring")
        self._crew = WorkerPool(pack(setup), self._block.handle, self.workers, importing.start)

    def client_infos(self) -> list[ClientInfo]:
        """Return the card of every client."""
        return make_client_infos(self.shares, self.method.weighting)

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs side by side; they all start from one state."""
        state = jobs[0].state
        if any(job.state is not state for job in jobs):
            raise ValueError("jobs that are trained together must start from the same state")
        tasks = [
            TrainTask(job.client, job.round, job.seed, self.state_rounds.get(job.client))
            for job in jobs
        ]
        turn = 0
        with SpillBuffer(limit=2 * self.workers + 2) as early:
            for number, answer in self._crew.run(tasks, pack_state(state)):
                early.put(number, answer)
                while turn in early:
                    yield self._take(early.take(turn), jobs[turn])
                    turn += 1

    def __call__(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of this state on every set of examples."""
        task = self.shares[0].dataset.task
        return {
            name: score_logits(logits, self._labels[name], task)
            for name, logits in self._predict(state).items()
        }

    def close(self) -> None:
        """End the workers."""
        self._crew.close()
        self._block.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, answer: bytes, job: TrainJob) -> ClientUpdate:
        update, kept = unpack_update(answer)
        if kept:
            self.state_rounds[job.client] = job.round
        return update

    def _predict(self, state: ModelState) -> dict[str, FloatArray]:
        tasks = [task for name in self._labels for task in self._cut(name)]
        parts: list[FloatArray | None] = [None] * len(tasks)
        for number, answer in self._crew.run(tasks, pack_state(state)):
            parts[number] = unpack(answer)
        return {
            name: np.concatenate(
                [
                    part
                    for task, part in zip(tasks, parts, strict=True)
                    if task.part == name and part is not None
                ]
            )
            for name in self._labels
        }

    def _cut(self, name: str) -> list[PredictTask]:
        """Cut a set of examples at whole batches, for the same bits as in one piece."""
        total = len(self._labels[name])
        batches = math.ceil(total / self.batch_size)
        step = self.batch_size * math.ceil(batches / (_PIECES_PER_WORKER * self.workers))
        return [
            PredictTask(name, start, min(start + step, total)) for start in range(0, total, step)
        ]
