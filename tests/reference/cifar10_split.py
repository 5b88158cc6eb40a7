"""Label counts of the paper's split of CIFAR-10: ten classes of 5,000 images among ten clients."""

from __future__ import annotations

from functools import cache

import numpy as np

CLIENTS, CLASSES, IMAGES = 10, 10, 5000


@cache
def label_counts(concentration: float = 0.1, seed: int = 0) -> np.ndarray:
    """Return (clients, classes), drawn as the public federated code does until all hold ten."""
    rng = np.random.RandomState(seed)
    counts = np.zeros((CLIENTS, CLASSES), dtype=int)
    while counts.sum(axis=1).min() < 10:
        counts[:] = 0
        for number in range(CLASSES):
            rng.shuffle(np.arange(IMAGES))  # the images' order is not needed, the draws are
            shares = rng.dirichlet(np.full(CLIENTS, concentration))
            shares[counts.sum(axis=1) >= CLASSES * IMAGES / CLIENTS] = 0
            cuts = (np.cumsum(shares / shares.sum()) * IMAGES).astype(int)[:-1]
            counts[:, number] = np.diff([0, *cuts, IMAGES])
    counts.flags.writeable = False
    return counts
