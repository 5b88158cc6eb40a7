"""The work that all variants do in a round: clients that each train an epoch of made-up images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 10
SIZE = 32
BATCH = 32
RATE, MOMENTUM, DECAY = 0.01, 0.9, 1e-4
SCORED = 20
"""Test images: a run wants some, the bare loop has none, so they are few."""


@dataclass(frozen=True)
class Work:
    """A round of `clients` clients with `images` images each, by a network of this name."""

    model: str = "small-cnn"
    clients: int = 10
    images: int = 500

    @property
    def total(self) -> int:
        """Images trained on in a round."""
        return self.clients * self.images

    @property
    def steps(self) -> int:
        """Training steps of a round, over all clients."""
        return self.clients * -(-self.images // BATCH)


def make_images(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return noise of uint8, a little brighter the higher its label, so that it can be learned."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, number)
    images = rng.integers(0, 128, (number, 3, SIZE, SIZE), dtype=np.uint8)
    images += (12 * labels).astype(np.uint8)[:, None, None, None]
    return images, labels


def save_images(path: Path, number: int) -> Path:
    """Write made-up images and a few test images as an .npz file."""
    images, labels = make_images(number)
    test_images, test_labels = make_images(SCORED, seed=1)
    np.savez(path, images=images, labels=labels, test_images=test_images, test_labels=test_labels)
    return path


def recipe(work: Work, data: Path, engine: str) -> dict[str, Any]:
    """Return the values of a recipe that does this work, for more rounds than anyone asks."""
    return {
        "engine": engine,
        "data": {
            "name": "npz",
            "path": str(data),
            "options": {"layout": "channels-first"},
            "partition": {"kind": "even", "clients": work.clients},
        },
        "model": {"name": work.model},
        "method": {"name": "fedavg"},
        "local": {
            "epochs": 1,
            "batch_size": BATCH,
            "lr": RATE,
            "momentum": MOMENTUM,
            "weight_decay": DECAY,
            "augment": False,
        },
        "rounds": {"number": 1_000_000},
    }
