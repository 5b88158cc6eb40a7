"""PNBLoss for several labels per image, a third of them unknown: overlaid handwritten digits."""

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedbb import PNBLoss

PREVALENCE = np.geomspace(0.5, 0.03, num=10)  # zeros are in half of the images, nines in 3 %
RARE = slice(5, 10)


def overlay_digits(samples: int, digits: slice, seed: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    images, numbers = load_digits(return_X_y=True)
    images, numbers = images[digits] / 16, numbers[digits]
    present = rng.random((samples, 10)) < PREVALENCE
    layers = np.stack([rng.choice(images[numbers == j], samples) for j in range(10)], axis=1)
    overlaid = (layers * present[:, :, None]).max(axis=1)
    return torch.from_numpy(overlaid).float(), torch.from_numpy(present).float()


def train(loss, x: Tensor, y: Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(20):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model


def known_bce(logits: Tensor, targets: Tensor) -> Tensor:
    known = ~targets.isnan()
    return F.binary_cross_entropy_with_logits(logits[known], targets[known])


x, y = overlay_digits(3000, slice(0, 1200), seed=0)
y[torch.rand(y.shape, generator=torch.Generator().manual_seed(0)) < 1 / 3] = torch.nan
test_x, test_y = overlay_digits(2000, slice(1200, None), seed=1)
pnb = PNBLoss.from_targets(y, task="multilabel")
for name, loss in (("BCE", known_bce), ("PNB", pnb)):
    found, rare = (train(loss, x, y)(test_x) > 0)[:, RARE], test_y[:, RARE] == 1
    recall, specificity = found[rare].float().mean(), (~found[~rare]).float().mean()
    print(f"{name}: rare digits found {recall:.3f}, absent ones left out {specificity:.3f}")
