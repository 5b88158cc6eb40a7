"""Merge updates that arrive one by one; print by how much the process grew."""

import json
import resource
import sys

import numpy as np
import torch

from fedbb.aggregation.merging import average
from fedbb.records import ClientUpdate, ModelState


def peak():
    """Return the most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def model_of(value, numbers):
    return ModelState({"weight": torch.full((numbers,), float(value))}, {})


def updates(clients, numbers):
    for client in range(clients):
        yield ClientUpdate(client, model_of(client, numbers), 1, 1.0, 0.0, 0.0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    clients, numbers = map(int, sys.argv[1:])
    weights = np.full(clients, 1 / clients)
    current = model_of(0, numbers)
    average(current, updates(2, 10), np.array([0.5, 0.5]))  # what torch loads on first use
    before = peak()
    merged = average(current, updates(clients, numbers), weights)
    expected = (clients - 1) / 2
    print(
        json.dumps(
            {
                "clients": clients,
                "model": 4 * numbers,
                "grown": peak() - before,
                "error": abs(float(merged.params["weight"][0]) - expected) / expected,
            }
        )
    )
