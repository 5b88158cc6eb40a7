"""Clients that lie: they train as told and spoil what they send, or train on false labels."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from fedbb.records import ClientFailure, ClientInfo, ClientUpdate, ModelState
from fedbb.rng import torch_stream
from fedbb.rounds.round import RoundReplies, TrainClients
from fedbb.simulation.inline import Engine
from fedbb.training.config import TrainJob
from fedbb.training.local import ClientDataset

Spoil = Callable[[TrainJob, ModelState], ModelState]


@dataclass(frozen=True, eq=False)
class Infiltrated:
    """An engine some of whose clients spoil the model they have trained before it is sent."""

    engine: Engine
    byzantine: frozenset[int]
    spoil: Spoil

    def client_infos(self) -> Sequence[ClientInfo]:
        """Return the card of every client; those of the liars are true."""
        return self.engine.client_infos()

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[ClientUpdate]:
        """Yield an update for every job, some of them spoiled."""
        for job, update in zip(jobs, self.engine.train(jobs), strict=True):
            if update.client in self.byzantine:
                yield replace(update, state=self.spoil(job, update.state))
            else:
                yield update


def move_by(factor: float) -> Spoil:
    """Return the attack that multiplies its change: −1 flips its sign, 100 owns a plain mean."""

    def spoil(job: TrainJob, trained: ModelState) -> ModelState:
        def along(start: dict, end: dict) -> dict:
            return {
                name: at + factor * (end[name] - at) if at.is_floating_point() else end[name]
                for name, at in start.items()
            }

        return ModelState(
            along(job.state.params, trained.params), along(job.state.buffers, trained.buffers)
        )

    return spoil


def add_noise(size: float) -> Spoil:
    """Return the attack that adds normal noise of this standard deviation to every parameter."""

    def spoil(job: TrainJob, trained: ModelState) -> ModelState:
        with torch_stream(job.seed, "attack", job.round, job.client):
            noisy = {
                name: tensor + size * torch.randn_like(tensor)
                for name, tensor in trained.params.items()
            }
        return ModelState(noisy, trained.buffers)

    return spoil


def flip_labels(shares: Sequence[ClientDataset], byzantine: frozenset[int]) -> list[ClientDataset]:
    """Return the shares, those of the liars with class c called C − 1 − c."""
    dataset = shares[0].dataset
    last = len(dataset.classes) - 1
    false = replace(dataset, train=replace(dataset.train, labels=last - dataset.train.labels))
    return [
        ClientDataset(false, share.indices) if client in byzantine else share
        for client, share in enumerate(shares)
    ]


def without(ask: TrainClients, gone: frozenset[int]) -> TrainClients:
    """Return a way of asking under which these clients never answer."""

    def ask_rest(jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        found = ask([job for job in jobs if job.client not in gone], attempt)
        away = [ClientFailure(job.client, "no answer") for job in jobs if job.client in gone]
        return replace(found, failures=(*found.failures, *away))

    return ask_rest
