"""Inputs of every shape and type reach plain networks, in the pool with the same bits."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import fedbb
from fedbb.runs.simulate import simulate
from fedbb.state import digest, snapshot
from fedbb.training.config import LocalConfig

LOCAL = LocalConfig(epochs=2, lr=0.05, batch_size=8)
LABELS = torch.arange(48) % 3


def flat(*layers, width):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3))


def shown(*shape):
    """Return fractions that tell the class."""
    inputs = torch.randn(48, *shape, generator=torch.Generator().manual_seed(0)) / 10
    return inputs + LABELS.view(-1, *(1,) * len(shape)) / 2


KINDS = {
    "vectors": (shown(7).double(), lambda: flat(width=7)),
    "signals": (shown(2, 20), lambda: flat(nn.Conv1d(2, 4, 3), width=72)),
    "two-channel images": (
        shown(2, 6, 6),
        lambda: flat(nn.Conv2d(2, 4, 3), nn.ReLU(), width=64),
    ),
    "volumes of bytes": (
        (shown(1, 4, 5, 6).clamp(0, 2) * 100).byte(),
        lambda: flat(nn.Conv3d(1, 2, 3), width=48),
    ),
    "token ids": (
        (shown(9) * 10).round().long().abs(),
        lambda: flat(nn.Embedding(25, 4), width=36),
    ),
    "truth values": (shown(9) > 0.5, lambda: flat(width=9)),
}


def federation(kind, workers=0):
    inputs, model = KINDS[kind]
    rows = TensorDataset(inputs, LABELS)
    data = fedbb.Dataset.from_torch(rows, rows)
    clients = fedbb.partition.iid(data, clients=3)
    torch.manual_seed(0)
    return simulate(
        data, clients, model=model(), method="fedbb", local=LOCAL, rounds=3, workers=workers
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_is_trained_and_scored(kind) -> None:
    result = federation(kind)
    assert len(result.history) == 3
    assert result.final["accuracy"] > 0.4
    again = federation(kind)
    assert digest(snapshot(again.model)) == digest(snapshot(result.model))


@pytest.mark.parametrize("kind", ["volumes of bytes", "token ids"])
def test_the_pool_gives_the_same_bits(kind) -> None:
    inline, pool = (digest(snapshot(federation(kind, workers).model)) for workers in (0, 2))
    assert inline == pool
