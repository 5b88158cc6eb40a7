"""What every framework's app does: a client's epoch in plain torch, and proof that it was done."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, RATE, MOMENTUM, DECAY = 32, 0.01, 0.9, 1e-4
DATA = "BENCHMARK_DATA"
"""The variable that names the .npz file; worker processes inherit it."""


@dataclass(frozen=True)
class Proof:
    """How many images were trained on, the sum of their serial numbers, and the summed loss."""

    images: int = 0
    serials: int = 0
    loss: float = 0.0

    def __add__(self, other: Proof) -> Proof:
        return Proof(
            self.images + other.images, self.serials + other.serials, self.loss + other.loss
        )


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--images", type=int, default=500, help="of each client")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True, help="where the app may write")
    options = parser.parse_args(arguments)
    os.environ[DATA] = options.data
    return options


@functools.cache
def client_data(client: int, images: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a client's images as normalized tensors, their labels and their serial numbers.

    Kept for later rounds, which is the kindest reading of what a framework may cache.
    """
    rows = slice(client * images, (client + 1) * images)
    with np.load(os.environ[DATA]) as archive:
        pixels = torch.from_numpy(archive["images"][rows])
        labels = torch.from_numpy(archive["labels"][rows])
    serials = torch.arange(rows.start, rows.stop) + 1
    images = (pixels.float() / 255 - 0.5) / 0.25
    return images.contiguous(memory_format=LAYOUT), labels, serials


LAYOUT = torch.contiguous_format


def use_channels_last() -> None:
    """Keep images in the layout that fedbb uses; the network's is the app's matter."""
    global LAYOUT
    LAYOUT = torch.channels_last


def train(model: nn.Module, client: int, number: int) -> Proof:
    """Train a network for an epoch on a client's images."""
    images, labels, serials = client_data(client, number)
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    model.train()
    proof = Proof()
    for batch in torch.randperm(len(labels)).split(BATCH):
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        proof += Proof(len(batch), int(serials[batch].sum()), loss.item() * len(batch))
    return proof


def tell(number: int, proof: Proof, at: float | None = None) -> None:
    """Print that a round is done, by default now, and what proves it."""
    loss = proof.loss / max(1, proof.images)
    line = {
        "round": number,
        "at": time.monotonic() if at is None else at,
        "images": proof.images,
        "serials": proof.serials,
        "loss": round(loss, 5),
    }
    print("ROUND " + json.dumps(line), file=sys.__stdout__, flush=True)
