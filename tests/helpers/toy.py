"""Small data and networks that tests train on in milliseconds."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedbb.data.dataset import Dataset, Examples
from fedbb.data.transforms import Augmentation
from fedbb.evaluation.metrics import Scorer
from fedbb.models.base import NetworkModule, Outputs, run_slim
from fedbb.records import Task
from fedbb.rng import stream, torch_stream
from fedbb.rounds.loop import Schedule, Start, run_rounds
from fedbb.rounds.round import PlainRound, train_all
from fedbb.rounds.server_steps import open_server_steps
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig
from fedbb.training.local import ClientDataset

CLASSES = 3


class ToyNet(NetworkModule):
    """Two small stages with batch norm: buffers to look after, and a last stage to slim."""

    def __init__(self, classes=CLASSES, dropout=0.0, projection=False):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 16, 2, 2), nn.BatchNorm2d(16), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.projector = nn.Linear(16, 8) if projection else nn.Identity()
        self.head = nn.Linear(8 if projection else 16, classes)

    def forward(self, images):
        first = self.first(images)
        last = self.last(first)
        embedding = self.projector(self.dropout(last.mean(dim=(2, 3))))
        return Outputs(self.head(embedding), embedding, (first, last))

    def tail(self, hidden, width):
        return run_slim(hidden, width, *self.last)


def toy_network(seed=0, **options):
    with torch_stream(seed, "toy"):
        return ToyNet(**options)


def toy_examples(task, samples, rng):
    if task is Task.MULTICLASS:
        labels = rng.integers(0, CLASSES, samples)
        shown = np.eye(CLASSES)[labels]
    else:
        labels = (rng.random((samples, CLASSES)) < [0.5, 0.2, 0.1]).astype(np.float32)
        shown = labels
    images = rng.normal(size=(samples, 1, 4, 4))
    images[:, 0, :3, 0] += 2 * shown
    return Examples(images.astype(np.float32), labels)


def toy_dataset(task=Task.MULTICLASS, train=60, test=30, seed=0):
    rng = stream(seed, "toy data")
    return Dataset(
        name="toy",
        task=task,
        classes=("a", "b", "c"),
        train=toy_examples(task, train, rng),
        test=toy_examples(task, test, rng),
        mean=(0.0,),
        std=(1.0,),
        augmentation=Augmentation(crop=1, flip=True),
    )


def toy_shares(dataset, clients=3):
    """Unequal parts: client k holds about k + 1 parts of the whole."""
    cuts = (
        np.cumsum(np.arange(1, clients + 1)) * len(dataset.train) // (clients * (clients + 1) // 2)
    )
    return [
        ClientDataset(dataset, part) for part in np.split(np.arange(len(dataset.train)), cuts[:-1])
    ]


def federate(engine, method, start, schedule, score):
    """Yield the rounds of an engine's clients from `start` to the end of the schedule."""
    federated_round = PlainRound(
        train_all(engine),
        method,
        engine.client_infos(),
        start.seed,
        server_steps=open_server_steps(engine, start.seed),
    )
    return run_rounds(federated_round, start, schedule, score)


def toy_rounds(method, dataset=None, plan=None, schedule=None, start=None, seed=0, **network):
    """Yield the rounds of a small federation."""
    dataset = dataset or toy_dataset()
    plan = plan or LocalConfig(batch_size=8, lr=0.1)
    model = toy_network(**network)
    start = start or Start(snapshot(model), seed=seed)
    engine = Inline(model, toy_shares(dataset), method, plan)
    scorer = Scorer(model, dataset, {"test": dataset.test})
    return federate(engine, method, start, schedule or Schedule(number=3), scorer)


def drop_rows(dataset, keep):
    """Return the data set with only these training examples."""
    return replace(dataset, train=dataset.train.take(np.asarray(keep)))


def equal_states(first, second):
    parts = ((first.params, second.params), (first.buffers, second.buffers))
    return all(
        one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
        for one, two in parts
    )
