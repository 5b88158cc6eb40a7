"""The network, and the digits that a site has."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

CLASSES = 10
SKEW = 0.5  # concentration of the Dirichlet draw: the smaller, the fewer digits a site has


class Net(nn.Module):
    """Two layers, with batch normalization between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.layers(x)


def load_data(site: int, sites: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a site's images and labels, for training and for testing."""
    images, labels = load_digits(return_X_y=True)
    rows = _divide(labels, sites)[site]
    x, y = torch.tensor(images[rows] / 16).float(), torch.tensor(labels[rows])
    test = max(1, len(rows) // 5)
    return x[test:], y[test:], x[:test], y[:test]


def _divide(labels: np.ndarray, sites: int) -> list[np.ndarray]:
    """Return the rows of each site; every digit is dealt out anew, so no two sites are alike."""
    rng = np.random.default_rng(6)
    parts: list[list[np.ndarray]] = [[] for _ in range(sites)]
    for digit in range(CLASSES):
        rows = rng.permutation(np.flatnonzero(labels == digit))
        bounds = np.cumsum(rng.dirichlet([SKEW] * sites))[:-1] * len(rows)
        for part, some in zip(parts, np.split(rows, bounds.astype(int)), strict=True):
            part.append(some)
    return [rng.permutation(np.concatenate(part)) for part in parts]
