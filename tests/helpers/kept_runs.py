"""Small simulations of methods that keep tensors at the server or at clients."""

import torch
from torch import nn

import fedbb
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from helpers.toy import toy_dataset

ROUNDS = 3
SIZE = toy_dataset().train.inputs[0].size


def wide():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(SIZE, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    )


def simulate_toy(method, model=wide, clients=4, **options):
    """Simulate on the toy data, whose test inputs are the public ones."""
    data = toy_dataset()
    division = fedbb.partition.dirichlet(data, clients=clients, concentration=0.5, seed=1)
    options = {"rounds": ROUNDS, "public": data.test.inputs, "bootstrap": 0, **options}
    settings = fedbb.LocalConfig(batch_size=4, lr=0.05)
    return fedbb.simulate(data, division, model=model, method=method, local=settings, **options)


def kept(folder):
    """Return the server state after the last round, and what every client keeps."""
    last = load_checkpoint(folder / "checkpoints" / f"round-{ROUNDS:06d}.safetensors")
    store = RunFolder(folder).client_states
    clients = {k: store.load(k, number).tensors for k, number in last.state_rounds.items()}
    return dict(last.server), clients


def same(one, two):
    """Tell whether two mappings have equal tensors under the same names."""
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
