"""PNBLoss in a plain PyTorch loop: long-tailed handwritten digits, without any federation."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from fedbb import PNBLoss

RARE = (5, 6, 7, 8, 9)


def long_tailed_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    digits, numbers = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split(
        digits / 16, numbers, test_size=0.4, random_state=0, stratify=numbers
    )
    keep = [np.flatnonzero(y == j)[: int(100 * 0.02 ** (j / 9))] for j in range(10)]
    rows = np.concatenate(keep)  # from 100 zeros down to 2 nines
    x, y, test_x, test_y = map(torch.as_tensor, (x[rows], y[rows], test_x, test_y))
    return x.float(), y, test_x.float(), test_y


def train(loss: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(15):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model


def rare_recall(model: nn.Module, x: Tensor, y: Tensor) -> float:
    right = model(x).argmax(dim=1) == y
    return float(np.mean([right[y == j].float().mean() for j in RARE]))


x, y, test_x, test_y = long_tailed_digits()
pnb = PNBLoss.from_targets(y)
effective = PNBLoss.from_targets(y, class_factor="effective")
print(pnb.explain())
for name, loss in (("CE", nn.CrossEntropyLoss()), ("PNB", pnb), ("PNB, effective", effective)):
    recalls = [rare_recall(train(loss, x, y, seed), test_x, test_y) for seed in range(5)]
    print(f"{name}: mean recall of the rare digits 5 to 9 is {np.mean(recalls):.3f}")
